"""Stands in for the fedhpc program where runs are planned: plan and help are answered here, runs by fake_fedhpc.

plan says $FAKE_MEMORY bytes per rank and 2 s per round for 24 clients on one rank, and refuses the key train.lrr and
learning rates of 9 and above. Every plan is appended to $FAKE_LOG with its number of ranks.
"""

import json
import os
import sys


def plan(arguments):
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return 0
    given = dict(argument.removeprefix("--").split("=", 1) for argument in arguments if "=" in argument)
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        print("plan", ranks, *arguments, file=log)
    if "train.lrr" in given or float(given.get("train.lr", 1)) >= 9:
        unknown = "unknown key 'train.lrr', " if "train.lrr" in given else ""
        print(f"fedhpc: error: {unknown}refused on purpose", file=sys.stderr)
        return 2
    clients = int(given.get("data.clients", 24))
    print(json.dumps({"ranks": ranks, "clients_per_rank": -(-clients // ranks), "seconds_per_round": 2.0 / ranks,
                      "memory_per_rank_bytes": int(os.environ["FAKE_MEMORY"])}))
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "plan":
        sys.exit(plan(sys.argv[3:]))
    if sys.argv[1] == "help":
        print("run.rounds\n  global rounds\n  allowed: a whole number of at least 1\n  default: 100")
        sys.exit(0)
    import fake_fedhpc  # and h5py, which takes longer than all that a plan does

    sys.exit(fake_fedhpc.main())
