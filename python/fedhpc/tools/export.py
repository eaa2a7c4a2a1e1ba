"""Writes the series of runs as TensorBoard event files (`fedhpc export RUN.h5 --csv DIR` writes tables).

    export.py RUN.h5|FOLDER ... --tensorboard DIR

Every run is a folder DIR/RUN with one event file: the scalars of /rounds under their own names, step = round,
wall time = the run's start plus the durations of its rounds. What was not evaluated in a round is left out.
TensorBoard keeps scalars in single precision. A file that is there from an earlier call is replaced, so that a run
that goes on can be exported again; one of another run, which began at another time, is refused. Prints a line per run.
Exit code 2: a file is missing or is no result file, or DIR cannot be written or has another run of that name.
"""

import argparse
import datetime
import math
import os
import sys
from pathlib import Path

import numpy as np

from .event_file import event, first_record, record
from .results import ResultError, load_all, tells

LARGEST = float(np.finfo(np.float32).max)


def start_of(run):
    """Seconds since 1970 at which the run began; without the attribute `started`, from its last write."""
    try:
        started = datetime.datetime.strptime(str(run.attributes.get("started", "")), "%Y-%m-%dT%H:%M:%SZ")
        return started.replace(tzinfo=datetime.timezone.utc).timestamp()
    except ValueError:
        return run.path.stat().st_mtime - durations(run).sum()


def durations(run):
    """Seconds of each round [T]; 0 where they are not known."""
    if "wall_seconds" not in run.rounds:
        return np.zeros(len(run.rounds))
    return np.nan_to_num(run.rounds["wall_seconds"].to_numpy(), posinf=0.0)


def scalars_of(names, values):
    """(name, value) of what is there in a round, within the range of single precision; infinite values stay."""
    return [(name, value if math.isinf(value) else max(-LARGEST, min(LARGEST, value)))
            for name, value in zip(names, values) if not math.isnan(value)]


def event_file_of(run):
    """(the content of the run's event file, number of scalars in it)."""
    start, names, count = start_of(run), list(run.rounds), 0
    times = start + np.cumsum(durations(run))
    records = [first_record(start)]
    for number, time, values in zip(run.rounds.index, times, run.rounds.to_numpy()):
        scalars = scalars_of(names, values.tolist())
        count += len(scalars)
        if scalars:
            records.append(record(event(float(time), int(number), scalars=scalars)))
    return b"".join(records), count


def folders_of(runs):
    """A folder name for each run: the file's, with that of its folder in front where two runs share one."""
    stems = [run.path.stem for run in runs]
    names = [stem if stems.count(stem) == 1 else f"{run.path.resolve().parent.name}_{stem}"
             for run, stem in zip(runs, stems)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ResultError(f"{', '.join(str(r.path) for r, n in zip(runs, names) if n == twice)}: both would be called "
                          f"{twice}; export one of them to another DIR")
    return names


def write_run(run, folder):
    """Puts the run's event file into `folder` in one step; (its path, number of scalars).

    ResultError where that of another run lies there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content, count = event_file_of(run)
    path = folder / f"events.out.tfevents.{int(start_of(run)):010d}.fedhpc"
    part = folder / f".{os.getpid()}.part"
    earlier = list(folder.glob("events.out.tfevents.*.fedhpc"))
    other = next((old for old in earlier if old.name != path.name), None)
    if other and "started" in run.attributes:
        raise ResultError(f"{other} is of another run than {run.path}; take it away or give another --tensorboard DIR")
    part.write_bytes(content)
    for old in earlier:
        old.unlink()
    os.replace(part, path)
    return path, count


def main(arguments):
    parser = argparse.ArgumentParser(description="Writes the series of fedhpc runs as TensorBoard event files.")
    parser.add_argument("runs", nargs="+", metavar="RUN.h5|FOLDER", type=Path,
                        help="result files, also of runs that go on, or folders of them")
    parser.add_argument("--tensorboard", metavar="DIR", type=Path, required=True,
                        help="folder of folders, one per run; then `tensorboard --logdir DIR`")
    options = parser.parse_args(arguments)
    try:
        runs = load_all(options.runs, tells("export"), least=0)
        for run, name in zip(runs, folders_of(runs)):
            path, count = write_run(run, options.tensorboard / name)
            print(f"{path}: {len(run.rounds)} rounds, {count} scalars")
    except ResultError as error:
        print(f"export: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"export: {options.tensorboard} cannot be written: {error}; give another --tensorboard DIR",
              file=sys.stderr)
        return 2
    return 0
