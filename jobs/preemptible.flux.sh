#!/bin/bash
# One run longer than a queue's time limit, or in a queue that takes its nodes back: the job submits itself again until
# the run is complete.
#
#   flux batch [--queue=QUEUE] [--nslots=8] jobs/preemptible.flux.sh CONFIG.ini [--section.key=value ...]
#
# Two minutes (FEDHPC_WARNING) before the time is up the run ends its round, writes a checkpoint and ends with 75; that
# and 137 submit the job again as it was submitted first. Other exit codes end the job; flux cancel ends it for good. A
# job that is cancelled to make room is not submitted again; the same command goes on from its newest checkpoint.
# Settings of the cluster: jobs/environment.sh.
# flux: --job-name=fedhpc
# flux: --nslots=4
# flux: --time-limit=4h
# flux: --output=fedhpc-{{id}}.out
set -u
FEDHPC_SCHEDULER=flux
FEDHPC_HOME=${FEDHPC_HOME:-$PWD}  # Flux runs a copy of this script, in the folder it was submitted in
. "$FEDHPC_HOME/jobs/environment.sh" || { echo "fedhpc job: set FEDHPC_HOME to the project's folder" >&2; exit 2; }

run_to_the_end "$(ranks_of_job)" "$@"
