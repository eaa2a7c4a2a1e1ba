"""Tries to break the program: what it does with any configuration, damaged file, kill, race or signal.

    campaign.py configs|files|kills|races|signals|all [--count N | --seconds S] [--seed K] [--case I]
                [--workers W] [--program FEDHPC] [--mpiexec MPIEXEC]

configs: random values of random keys. A run is carried out or refused with exit code 2 and one line. One in ten runs
         again on other ranks with run.reproducible=true and has the same bits; another one in ten is killed and resumed.
files:   one mutation of a file that is read: configuration, result file, checkpoint, initial model, partition, data.
         It is refused in one line, or what comes out is what the whole file gives.
kills:   a rank, or all, is killed with SIGKILL at any moment, until the resumed run is complete: the bits of one never
         killed.
races:   two starts of run or resume on one output: one result, whole, and nothing lost.
signals: SIGINT, SIGTERM or SIGUSR1 at any moment from exec to exit: 0, 75 or death before the first round; what is
         resumed has the bits of a straight run.

Every case is drawn from its kind, --seed and number alone, and --case I repeats one. Prints how the cases ended, and
each failure with the command that repeats it. Exit code 0: none failed, 1: some did.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .campaign_cases import KINDS, Failure
from .campaign_runs import Runs


def one_case(kind, seed, number, runs):
    """How one case ended: (word, what went wrong or "")."""
    rng = random.Random(f"{kind} {seed} {number}")
    with tempfile.TemporaryDirectory(prefix="fedhpc_campaign_") as folder:
        try:
            return KINDS[kind](rng, Path(folder), runs), ""
        except Failure as failure:
            return "failed", str(failure)


def campaign(kind, options, runs):
    """Carries out one kind and prints its counts; the number of failures."""
    numbers = [options.case] if options.case is not None else range(sys.maxsize if options.count is None else options.count)
    end = time.monotonic() + options.seconds if options.case is None and options.count is None else float("inf")
    ended, failures = Counter(), []

    def work(number):
        return number, *(one_case(kind, options.seed, number, runs) if time.monotonic() < end else ("left out", ""))

    began = told = time.monotonic()
    with ThreadPoolExecutor(options.workers) as workers:
        source, pending = iter(numbers), []
        while True:
            while len(pending) < 2 * options.workers and time.monotonic() < end:
                number = next(source, None)
                if number is None:
                    break
                pending.append(workers.submit(work, number))
            if not pending:
                break
            number, word, reason = pending.pop(0).result()
            if word == "left out":
                continue
            ended[word] += 1
            if time.monotonic() > told + 60:
                told = time.monotonic()
                print(f"{kind}: {sum(ended.values())} cases so far, {len(failures)} failed", file=sys.stderr, flush=True)
            if reason:
                failures.append(number)
                print(f"{kind} case {number} failed: {reason}\n  again: tools/campaign.py {kind} --seed {options.seed} "
                      f"--case {number}", flush=True)
    counts = ", ".join(f"{count} {word}" for word, count in sorted(ended.items()))
    print(f"{kind}: {sum(ended.values())} cases in {time.monotonic() - began:.0f} s: {counts or 'none'}", flush=True)
    return len(failures)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*KINDS, "all"])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--count", type=int, metavar="N", help="cases of each kind")
    length.add_argument("--seconds", type=float, default=60.0, metavar="S", help="time for each kind [60]")
    parser.add_argument("--seed", type=int, default=0, metavar="K", help="of all that is drawn [0]")
    parser.add_argument("--case", type=int, metavar="I", help="this case alone")
    parser.add_argument("--workers", type=int, default=1, metavar="W", help="cases at a time [1]")
    parser.add_argument("--program", default="build/release/fedhpc", metavar="FEDHPC", help="[build/release/fedhpc]")
    parser.add_argument("--mpiexec", default="mpirun", metavar="MPIEXEC", help="[mpirun]")
    options = parser.parse_args(arguments)
    for name in ("count", "workers"):
        if (given := getattr(options, name)) is not None and given < 1:
            parser.error(f"--{name} {given}: must be at least 1")
    if not Path(options.program).exists():
        print(f"campaign: no program '{options.program}'; build it or give --program", file=sys.stderr)
        return 2
    runs = Runs(Path(options.program).resolve(), options.mpiexec)
    kinds = KINDS if options.kind == "all" else [options.kind]
    return 1 if sum(campaign(kind, options, runs) for kind in kinds) else 0
