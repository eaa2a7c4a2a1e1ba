"""Stands in for the fedhpc program where runs are planned: plan is answered here, runs by fake_fedhpc.

plan says $FAKE_MEMORY bytes per rank and 2 s per round for 24 clients on one rank, 100 rounds where nothing sets them
and $FAKE_DIGEST of the data and $FAKE_CODE of the code, warns of $FAKE_WARNING, and refuses the key train.lrr and
learning rates of $FAKE_LIMIT [9] and above. With $FAKE_NO_GPU it refuses run.device = cuda as well. Every plan is
appended to $FAKE_LOG with its number of ranks.
"""

import configparser
import json
import os
import sys
from pathlib import Path


METRICS = ["train_loss", "global_accuracy", "global_loss", "validation_global_accuracy", "simulated_seconds"]


def has(name, config):
    """Whether the run will have values of a series."""
    if name.startswith("validation_"):
        return float(config.get("data.validation_fraction", 0)) > 0 or config.get("data.partition") == "file"
    return name != "simulated_seconds" or any(key.startswith("network.") for key in config)


def plan(target, arguments):
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return 0
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments if "=" in argument)
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        print("plan", ranks, *arguments, file=log)
    if "train.lrr" in given or float(given.get("train.lr", 1)) >= float(os.environ.get("FAKE_LIMIT", "9")):
        unknown = "unknown key 'train.lrr', " if "train.lrr" in given else ""
        print(f"fedhpc: error: {unknown}refused on purpose", file=sys.stderr)
        return 2
    ini = configparser.ConfigParser(interpolation=None, strict=False)
    if not ini.read(target):
        print(f"fedhpc: error: {target}: No such file or directory", file=sys.stderr)
        return 2
    config = {"run.rounds": "100", **{f"{name}.{key}": value for name, section in ini.items()
                                      for key, value in section.items()}, **given}
    if "FAKE_NO_GPU" in os.environ and config.get("run.device") == "cuda":
        print("fedhpc: error: key 'run.device' cannot be 'cuda': no CUDA device; allowed: auto, cpu", file=sys.stderr)
        return 2
    if "FAKE_WARNING" in os.environ:
        print(f"fedhpc: warning: {os.environ['FAKE_WARNING']}", file=sys.stderr)
    clients = int(given.get("data.clients", 24))
    print(json.dumps({"ranks": ranks, "clients_per_rank": -(-clients // ranks), "seconds_per_round": 2.0 / ranks,
                      "memory_per_rank_bytes": int(os.environ["FAKE_MEMORY"]), "rounds": int(config["run.rounds"]),
                      "config": config, "metrics": [name for name in METRICS if has(name, config)],
                      "data_digest": os.environ.get("FAKE_DIGEST", ""), "model_digest": "",
                      "code_digest": os.environ.get("FAKE_CODE", "")}))
    return 0


def output_of(target, arguments):
    """What `show config TARGET run.output` says, of a file without a base."""
    ini = configparser.ConfigParser(interpolation=None, strict=False)
    ini.read(target)
    given = [argument.split("=", 1)[1] for argument in arguments if argument.startswith("--run.output=")]
    return [ini.get("run", "output", fallback=f"{Path(target).stem}.h5"), *given][-1]


if __name__ == "__main__":
    if sys.argv[1:3] == ["show", "config"]:
        print(output_of(sys.argv[3], sys.argv[5:]))
        sys.exit(0)
    if sys.argv[1] == "plan":
        sys.exit(plan(sys.argv[2], sys.argv[3:]))
    import fake_fedhpc  # and h5py, which takes longer than all that a plan does

    sys.exit(fake_fedhpc.main())
