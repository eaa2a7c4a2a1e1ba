"""FedAvg by Flower: its strategy over its simulation, a ServerApp and a ClientApp, with Ray and one actor."""

import functools
import os
import sys

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import problems  # noqa: E402
import torch  # noqa: E402
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from networks import accuracy, epoch, network, samples  # noqa: E402


@functools.cache
def loaded(folder):
    """The problem, its network and its samples, once in each process."""
    problem = problems.load(folder)
    return problem, network(problem), *samples(problem)


def client_app(folder):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context):
        problem, net, x, y = loaded(folder)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        net.train()
        mine = torch.from_numpy(problem.clients[context.node_config["partition-id"]])
        batches = mine[torch.randperm(len(mine))].split(problem.batch)
        total = epoch(net, ((x[batch], y[batch]) for batch in batches), problem.lr)
        content = {"arrays": ArrayRecord(net.state_dict()),
                   "metrics": MetricRecord({"loss": total / len(mine), "num-examples": len(mine)})}
        return Message(content=RecordDict(content), reply_to=message)

    return app


def server_app(problem, report):
    app = ServerApp()

    def evaluate(round_, arrays):
        if round_ and report.due(round_):
            net = network(problem)
            net.load_state_dict(arrays.to_torch_state_dict())
            report(round_, accuracy(net, problem))

    def told(replies, weighting):
        """Flower goes on without clients that failed; here all have to answer."""
        if len(replies) != problem.cohort:
            raise RuntimeError(f"{len(replies)} of {problem.cohort} clients have answered")
        metrics = aggregate_metricrecords(replies, weighting)
        report.losses.append(metrics["loss"])
        return metrics

    @app.main()
    def main(grid: Grid, context: Context):
        clients = len(problem.clients)
        strategy = FedAvg(fraction_train=min(1.0, (problem.cohort + 0.5) / clients), fraction_evaluate=0.0,
                          min_train_nodes=problem.cohort, min_available_nodes=clients, train_metrics_aggr_fn=told)
        strategy.start(grid, ArrayRecord(network(problem).state_dict()), report.rounds, evaluate_fn=evaluate)
        if len(report.losses) != report.rounds:
            raise RuntimeError("no client has answered")

    return app


def train(problem, report):
    run_simulation(server_app(problem, report), client_app(os.path.abspath(sys.argv[1])), len(problem.clients),
                   backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}})


if __name__ == "__main__":
    import peer_flower  # whose functions Ray's actors find by name

    problems.main(peer_flower.train)
