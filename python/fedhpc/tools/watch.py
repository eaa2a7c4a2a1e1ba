"""Shows a run while it goes on: rounds, rate, time left, accuracy, loss, bytes and a small chart.

    watch.py RUN.h5 [--metric NAME] [--interval SECONDS] [--wait] [--once]

On a terminal the view is drawn anew every --interval seconds; elsewhere (a log, a pipe) every new round that
is seen is one plain line. The run is only read, never held up. Ends by itself when the run has ended: exit code 0
if it is complete or has diverged, 1 if it was interrupted, has failed or was stopped by run.stop_on_divergence. A run
that is killed leaves no word in its file: after a silence of ten rounds the view says `running or killed` and goes
on, until Ctrl-C (exit code 130).
--wait: also waits for a file that is not there yet, and for a run that was interrupted or has failed to be
resumed, as a batch system does that puts the job back into its queue. A file that `fedhpc resume` replaces is
opened again by itself. --once: one view, exit code 0. Exit code 2: no file (without --wait), or no result file.
"""

import argparse
import math
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from .axes import unit_prefix
from .follower import Follower
from .labels import title_of
from .panels import name_of
from .results import DIVERGED, ENDED, RUNNING, SILENT, ResultError
from .text_chart import chart

RATE_ROUNDS = 20  # the rate is that of so many last rounds
CLEAR = "\x1b[H\x1b[J"  # to the upper left corner, and nothing below
ACCURACIES = ("global_accuracy", "personal_accuracy", "edge_accuracy")
F1S = ("global_f1", "personal_f1")
LOSSES = ("global_rmse", "personal_rmse", "train_loss", "global_loss", "personal_loss", "global_perplexity")


def last_value(run, metric):
    """The last evaluated value, NaN too; None without one."""
    values = run.evaluated(metric)
    return None if values.empty else float(values.iloc[-1])


def rounds_asked_for(run):
    """run.rounds of the configuration; None if it states none."""
    text = run.config.get("run.rounds", "")
    return int(text) if text.isdigit() else None


def rate_of(run):
    """Rounds per second over the last rounds; None where their durations are not known."""
    if "wall_seconds" not in run.rounds:
        return None
    seconds = run.rounds["wall_seconds"].to_numpy()[-RATE_ROUNDS:]
    seconds = seconds[np.isfinite(seconds)]
    return len(seconds) / seconds.sum() if len(seconds) and seconds.sum() > 0 else None


def seconds_text(seconds):
    """A duration as 02:05, 1:02:05 or 3 d 4 h."""
    seconds = int(round(seconds))
    if seconds >= 86400:
        return f"{seconds // 86400} d {seconds % 86400 // 3600} h"
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def bytes_text(number):
    divisor, label = unit_prefix(number, "[B]")
    return f"{number / divisor:.1f} {label[1:-1]}"


def traffic_text(run):
    """Bytes of all links and rounds so far; "" where none are booked."""
    up, down = (float(np.nansum(run.rounds.filter(regex=f"^bytes_{way}_").to_numpy())) for way in ("up", "down"))
    return f"{bytes_text(up + down)} (up {bytes_text(up)}, down {bytes_text(down)})" if up + down else ""


def pace_text(run):
    """Rate and, while the run goes on, the time left."""
    rate, wanted = rate_of(run), rounds_asked_for(run)
    if rate is None:
        return ""
    text = f"{rate:.1f} rounds/s" if rate >= 1.0 else f"{1.0 / rate:.1f} s/round"
    if run.status == RUNNING and wanted is not None and wanted > len(run.rounds):
        text += f"  {seconds_text((wanted - len(run.rounds)) / rate)} left"
    return text


def round_text(run):
    wanted = rounds_asked_for(run)
    return f"round {len(run.rounds)}" + (f"/{wanted}" if wanted is not None else "")


def plain_line(run):
    """One line for a log."""
    parts = [round_text(run)]
    loss = last_value(run, "train_loss")
    parts += [f"loss {loss:.4f}"] if loss is not None else []
    for metric in (*ACCURACIES[:2], *LOSSES[:2]):
        value = last_value(run, metric)
        parts += [f"{metric.replace('_', ' ')} {value_text(metric, value)}"] if value is not None else []
    parts += [traffic_text(run).split(" (")[0], pace_text(run), "" if run.status == RUNNING else run.status]
    return "  ".join(part for part in parts if part)


def value_text(metric, value):
    return f"{100 * value:.2f} %" if "accuracy" in metric else f"{value:.4g}"


def view(run, metric, width):
    """The lines of the view on a terminal that is `width` wide."""
    wanted = rounds_asked_for(run)
    silent = f", silent for {seconds_text(run.silence)}" if run.status == SILENT else ""
    lines = [f"{run.path.name}: {run.status}{silent}", title_of([run]), ""]
    share = "" if not wanted else f"  {100 * len(run.rounds) // wanted:3d} %"
    lines.append("  ".join(part for part in (round_text(run) + share, pace_text(run)) if part))
    if len(run.rounds) and "wall_seconds" in run.rounds:
        lines.append(f"wall time {seconds_text(np.nansum(run.rounds['wall_seconds']))}")
    for name in (*ACCURACIES, *F1S, *LOSSES):
        values = run.evaluated(name)
        if len(values):
            best = values.idxmin() if name in LOSSES else values.idxmax()
            lines.append(f"{name_of(name):18s} {value_text(name, values.iloc[-1]):>9s} last  "
                         f"{value_text(name, values[best]):>9s} best (round {best})")
    lines += [f"traffic {traffic_text(run)}"] if traffic_text(run) else []
    values = run.evaluated(metric) if metric else next(
        (run.evaluated(name) for name in (*ACCURACIES, *LOSSES) if len(run.evaluated(name)) > 1), run.evaluated(""))
    if len(values) > 1:
        factor = 100.0 if "accuracy" in values.name else 1.0
        points = [(number, factor * value) for number, value in values.items() if math.isfinite(value)]
        name = name_of(values.name) + (" [%]" if factor == 100.0 else "")
        lines += ["", f"{name} by round", *chart(points, width=max(20, min(72, width - 14)))]
    return [line[: width - 1] for line in lines]


def show(run, options, terminal):
    """Prints the run: a view on a terminal or with --once, else a line."""
    if terminal or options.once:
        width = shutil.get_terminal_size((80, 24)).columns
        text = "\n".join(view(run, options.metric, width))
        print((CLEAR if terminal and not options.once else "") + text, flush=True)
    else:
        print(plain_line(run), flush=True)


def check_metric(run, metric):
    if metric is not None and metric not in run.rounds:
        raise ResultError(f"{run.path}: no series {metric}; there are {', '.join(run.rounds)}")


def watch(options, terminal):
    """Shows the run until it ends; the exit code."""
    follower, shown, trouble = Follower(options.run), None, None
    while True:
        try:
            run = follower.read()
            check_metric(run, options.metric)
        except (FileNotFoundError, ResultError) as error:
            missing = not os.path.exists(options.run)  # a ResultError too, where it goes while it is read
            if missing and not options.wait:
                raise ResultError(f"{options.run}: no such file; --wait waits for it") from None
            if not missing and (shown is None or options.once):
                raise
            # A file that could be read before may be in the middle of being replaced.
            text = f"waiting for {options.run}" if missing else f"not readable for the moment: {error}"
            if text != trouble:
                print(text, flush=True)
            trouble = text
        else:
            state = (len(run.rounds), run.status)
            if terminal or state != shown or options.once:
                show(run, options, terminal)
            shown, trouble = state, None
            if options.once:
                return 0
            if run.status in ENDED:  # the run's own code
                return 1 if run.status == DIVERGED and run.config.get("run.stop_on_divergence") == "true" else 0
            if run.status not in (RUNNING, SILENT) and not options.wait:
                print(f"{run.status}: `fedhpc resume {options.run}` goes on with it", flush=True)
                return 1
        time.sleep(options.interval)


def positive(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds above 0")
    return value


def main(arguments):
    parser = argparse.ArgumentParser(description="Shows a fedhpc run while it goes on.")
    parser.add_argument("run", metavar="RUN.h5", type=Path, help="its result file")
    parser.add_argument("--metric", metavar="NAME", help="what the chart shows, a /rounds data set [an accuracy]")
    parser.add_argument("--interval", type=positive, default=2.0, metavar="SECONDS", help="between two looks [2]")
    parser.add_argument("--wait", action="store_true",
                        help="wait for a missing file, and for an interrupted run's resume")
    parser.add_argument("--once", action="store_true", help="show the run as it is now and end")
    options = parser.parse_args(arguments)
    try:
        return watch(options, sys.stdout.isatty())
    except ResultError as error:
        print(f"watch: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise  # start.py ends quietly
    except OSError as error:
        print(f"watch: {options.run}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
