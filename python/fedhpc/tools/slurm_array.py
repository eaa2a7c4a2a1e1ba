"""One SLURM array job for the pending runs of a paper: a task for each row and seed.

Every task is a call `reproduce.py PAPER --task RUN`, which runs or resumes one run under mpirun on one node.
Two minutes before its time limit a task is asked for a checkpoint and put back into the queue, where it
goes on from there; so it is when it was killed, up to MAX_KILLS restarts. Submitting again what is pending
is harmless: a task whose run is finished ends at once, and no run has two tasks at work.
"""

import os
import shlex
import sys
from pathlib import Path

from .project import needed
from .submit import WARNING_SECONDS, literal

MAX_KILLS = 5  # restarts of a task after which a kill (memory, node) is a failure

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}{throttle}
#SBATCH --nodes=1
#SBATCH --ntasks={ranks}
#SBATCH --time={minutes}
#SBATCH --signal=B:USR1@{warning}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={log}
{directives}
# The pending runs of {paper}, one a task; `{status}` shows how far they are.

. {await_end} || exit 2

runs=({runs})
run=${{runs[$SLURM_ARRAY_TASK_ID]}}

# USR1: the time is nearly up. TERM: cancelled or preempted, SLURM itself says what becomes of the task.
asked= cancelled= task= code=0
stop() {{ [ -z "$task" ] || kill -TERM "$task" 2>/dev/null; }}
trap 'asked=1; stop' USR1
trap 'cancelled=1; stop' TERM
{command} --task "$run" &
task=$!
[ -z "$asked$cancelled" ] || stop  # a signal that came before $task was known
await_end "$task" || code=$?

echo "$run: exit code $code${{asked:+, the time was up}}${{cancelled:+, cancelled}}"
again=
case $code in
  75) again=1 ;;
  143) again=$asked ;;  # the signal came before the task listened
  137) [ "${{SLURM_RESTART_COUNT:-0}}" -lt {kills} ] && again=1 ;;
esac
if [ -n "$again" ] && [ -z "$cancelled" ]; then
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && exit 0
fi
exit "$code"
"""


def quoted(option):
    """An option of sbatch as a line of a script has it: the value in quotes where it needs them."""
    name, equals, value = option.partition("=")
    return f"{name}{equals}{shlex.quote(value) if value else ''}"


def script(options, reproduce, names, program):
    """The text of the job script for the runs `names`; `reproduce` is the path of the script to call."""
    # The Python at hand: it has the libraries, which the nodes' own may lack.
    command = [sys.executable, str(reproduce), options.paper, "--ranks", str(options.ranks),
               "--seeds", str(options.seeds), "--output-dir", str(options.papers_dir.resolve()),
               "--fedhpc", str(program)]
    command += ["--quick"] if options.quick else []
    data = options.data or os.environ.get("FEDHPC_DATA")
    command += ["--data", str(Path(data).resolve())] if data else []
    directives = "".join(f"#SBATCH {quoted(option)}\n" for option in shlex.split(options.slurm_options))
    return SCRIPT.format(
        name=f"fedhpc-{options.paper}", last=len(names) - 1, ranks=options.ranks, minutes=options.slurm_minutes,
        throttle=f"%{options.slurm_tasks}" if options.slurm_tasks else "", warning=WARNING_SECONDS, kills=MAX_KILLS,
        log=shlex.quote(f"{literal(options.output_dir.resolve())}/slurm-%A_%a.log"), directives=directives, paper=options.paper,
        status=shlex.join([str(reproduce), options.paper, "--output-dir", str(options.papers_dir.resolve()), "--status"]),
        runs=" ".join(map(shlex.quote, names)), command=shlex.join(command),
        await_end=shlex.quote(str(needed("jobs/await_end.sh"))))
