"""FedAvg with clients trained together by torch.func.vmap, with fedhpc's cohorts and batches.

Clients have equally many samples here, so that their steps are in step.
"""

import numpy as np
import problems
import torch
from networks import accuracy, network, samples
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

BLOCK = {"cnn": 5}  # clients of a call, where all of a round at once are slower: 36 against 24 ms a client and step


def train(problem, report):
    net = network(problem)
    x, y = samples(problem)

    def loss_of(parameters, x, y):
        return functional.cross_entropy(functional_call(net, parameters, (x,)), y)

    gradients = vmap(grad_and_value(loss_of), randomness="different")

    def trained(model, clients, round_):
        """({name: sum of the clients' weights}, sum of losses of samples, number of samples)."""
        own = {name: value.expand(len(clients), *value.shape).clone() for name, value in model.items()}
        loss, count = 0.0, 0
        for batches in zip(*(problem.batches_of(client, round_) for client in clients), strict=True):
            chosen = torch.from_numpy(np.stack(batches))  # [C, B]
            gradient, of_client = gradients(own, x[chosen], y[chosen])
            for name, value in own.items():
                value.sub_(gradient[name], alpha=problem.lr)
            loss += of_client.sum().item() * chosen.shape[1]
            count += chosen.numel()
        return {name: value.sum(0) for name, value in own.items()}, loss, count

    model = {name: parameter.detach() for name, parameter in net.named_parameters()}
    for round_ in range(1, report.rounds + 1):
        cohort = problem.cohort_of(round_)
        block = BLOCK.get(problem.model, len(cohort))
        blocks = [cohort[first:first + block] for first in range(0, len(cohort), block)]
        total, loss, count = {name: torch.zeros_like(value) for name, value in model.items()}, 0.0, 0
        for clients in blocks:
            sums, of_block, samples_of_block = trained(model, clients, round_)
            for name, value in sums.items():
                total[name] += value
            loss, count = loss + of_block, count + samples_of_block
        model = {name: value / len(cohort) for name, value in total.items()}
        report.losses.append(loss / count)
        if report.due(round_):
            net.load_state_dict(model)
            report(round_, accuracy(net, problem))


if __name__ == "__main__":
    problems.main(train)
