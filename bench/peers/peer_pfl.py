"""FedAvg by pfl-research: its FederatedAveraging over its simulated backend, as its own CIFAR-10 benchmark calls it.

Its users are drawn with replacement, and a user's batches are the same in every round.
"""

import types

import numpy as np
import problems
import torch
from networks import accuracy, network, samples
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional

NEVER = 2**31 - 1


def loss(net, x, y, eval=False):
    net.train(not eval)
    return functional.cross_entropy(net(x), y)


@torch.no_grad()
def metrics(net, x, y, eval=True):
    return {"loss": Weighted(loss(net, x, y, eval).item() * len(y), len(y))}


class Evaluation(TrainingProcessCallback):
    def __init__(self, problem, report):
        self.problem, self.report = problem, report

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        if self.report.due(central_iteration + 1):
            self.report(central_iteration + 1, accuracy(model.pytorch_model, self.problem))
        return False, Metrics()


def train(problem, report):
    np.random.seed(problem.seed)
    net = network(problem)
    net.loss, net.metrics = types.MethodType(loss, net), types.MethodType(metrics, net)
    x, y = samples(problem)
    users = {user: (x[mine], y[mine]) for user, mine in enumerate(map(torch.from_numpy, problem.clients))}
    x = problem.train_x = None  # users have copies
    data = FederatedDataset.from_slices(users, get_user_sampler("random", range(len(users))))
    FederatedAveraging().run(
        NNAlgorithmParams(central_num_iterations=report.rounds, evaluation_frequency=NEVER,
                          train_cohort_size=problem.cohort, val_cohort_size=0),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByUser()]),
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0)),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=problem.lr, local_batch_size=problem.batch),
        NNEvalHyperParams(local_batch_size=None), [Evaluation(problem, report)])


if __name__ == "__main__":
    problems.main(train)
