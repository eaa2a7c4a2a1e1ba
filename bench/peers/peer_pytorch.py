"""FedAvg as a plain loop in PyTorch: one client after the other, with fedhpc's cohorts and batches."""

import problems
import torch
from networks import accuracy, epoch, network, samples


def train(problem, report):
    net = network(problem)
    x, y = samples(problem)
    parameters = list(net.parameters())
    for round_ in range(1, report.rounds + 1):
        start = [parameter.detach().clone() for parameter in parameters]
        total = [torch.zeros_like(parameter) for parameter in start]
        cohort, loss, count = problem.cohort_of(round_), 0.0, 0
        for client in cohort:
            with torch.no_grad():
                for parameter, value in zip(parameters, start):
                    parameter.copy_(value)
            chosen = [torch.from_numpy(batch) for batch in problem.batches_of(client, round_)]
            loss += epoch(net, ((x[batch], y[batch]) for batch in chosen), problem.lr)
            count += sum(map(len, chosen))
            with torch.no_grad():
                for one, parameter in zip(total, parameters):
                    one += parameter
        with torch.no_grad():
            for parameter, value in zip(parameters, total):
                parameter.copy_(value / len(cohort))
        report.losses.append(loss / count)
        if report.due(round_):
            report(round_, accuracy(net, problem))


if __name__ == "__main__":
    problems.main(train)
