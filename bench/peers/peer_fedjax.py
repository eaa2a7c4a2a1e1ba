"""FedAvg by FedJAX: its federated_averaging over its data in memory, its default backend, with a model of Haiku."""

import os

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}

import fedjax  # noqa: E402
import haiku as hk  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import problems  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402


def forward(problem):
    """batch, whether dropout acts -> outputs; images have their channels behind."""
    def cnn(x, is_train):
        drop = (lambda rate, x: hk.dropout(hk.next_rng_key(), rate, x)) if is_train else lambda rate, x: x
        for channels in (32, 64):
            x = jax.nn.relu(hk.Conv2D(channels, 3, padding="VALID")(x))
        x = hk.Flatten()(drop(0.25, hk.max_pool(x, (2, 2, 1), (2, 2, 1), "VALID")))
        return hk.Linear(problem.classes)(drop(0.5, jax.nn.relu(hk.Linear(128)(x))))

    def full(x, is_train):
        return hk.nets.MLP([100, problem.classes] if problem.model == "mlp" else [problem.classes])(x)

    of = cnn if problem.model == "cnn" else full
    return hk.transform(lambda batch, is_train=True: of(batch["x"], is_train))


def images_last(x):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x


def train(problem, report):
    problem.train_x, problem.test_x = images_last(problem.train_x), images_last(problem.test_x)
    examples = [dict(zip("xy", problem.of_client(client))) for client in range(len(problem.clients))]
    problem.train_x = None  # clients have copies
    data = fedjax.InMemoryFederatedData(dict(enumerate(examples)))
    model = fedjax.create_model_from_haiku(
        forward(problem), {key: value[:1] for key, value in examples[0].items()},
        lambda batch, outputs: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs),
        {"accuracy": fedjax.metrics.Accuracy()}, {"is_train": True}, {"is_train": False})
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model), fedjax.optimizers.sgd(problem.lr), fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=problem.batch))
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, problem.cohort, problem.seed)
    state = algorithm.init(model.init(jax.random.PRNGKey(problem.seed)))
    test = fedjax.ClientDataset({"x": problem.test_x, "y": problem.test_y})
    for round_ in range(1, report.rounds + 1):
        state, _ = algorithm.apply(state, sampler.sample())
        if report.due(round_):
            report(round_, fedjax.evaluate_model(model, state.params, test.padded_batch(batch_size=500))["accuracy"])


if __name__ == "__main__":
    problems.main(train)
