"""FedAvg with all clients of a round trained together by torch.func.vmap, with fedhpc's cohorts and batches.

Clients have equally many samples here, so that their steps are in step.
"""

import numpy as np
import problems
import torch
from networks import accuracy, network, samples
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional


def train(problem, report):
    net = network(problem)
    x, y = samples(problem)

    def loss_of(parameters, x, y):
        return functional.cross_entropy(functional_call(net, parameters, (x,)), y)

    gradients = vmap(grad_and_value(loss_of), randomness="different")
    model = {name: parameter.detach() for name, parameter in net.named_parameters()}
    for round_ in range(1, report.rounds + 1):
        cohort = problem.cohort_of(round_)
        steps = zip(*(problem.batches_of(client, round_) for client in cohort), strict=True)
        own = {name: value.expand(len(cohort), *value.shape).clone() for name, value in model.items()}
        loss, count = 0.0, 0
        for batches in steps:
            chosen = torch.from_numpy(np.stack(batches))  # [C, B]
            gradient, of_client = gradients(own, x[chosen], y[chosen])
            for name, value in own.items():
                value.sub_(gradient[name], alpha=problem.lr)
            loss += of_client.sum().item() * chosen.shape[1]
            count += chosen.numel()
        model = {name: value.mean(0) for name, value in own.items()}
        report.losses.append(loss / count)
        if report.due(round_):
            net.load_state_dict(model)
            report(round_, accuracy(net, problem))


if __name__ == "__main__":
    problems.main(train)
