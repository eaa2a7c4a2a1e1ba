#!/bin/bash
# One run on one node, a rank to each slot, which is a core or, with --gpus-per-slot=1, a core and a GPU:
#
#   flux batch [--nslots=8] [--gpus-per-slot=1] [-t 30m] jobs/single_node.flux.sh CONFIG.ini [--section.key=value ...]
#
# Two minutes before its time is up the run ends its round and writes a checkpoint (exit code 75); the same command
# goes on from there. Settings of the cluster: jobs/environment.sh.
# flux: --job-name=fedhpc
# flux: --nodes=1
# flux: --nslots=4
# flux: --time-limit=60m
# flux: --output=fedhpc-{{id}}.out
set -u
FEDHPC_SCHEDULER=flux
FEDHPC_HOME=${FEDHPC_HOME:-$PWD}  # Flux runs a copy of this script, in the folder it was submitted in
. "$FEDHPC_HOME/jobs/environment.sh" || { echo "fedhpc job: set FEDHPC_HOME to the project's folder" >&2; exit 2; }

run_once "$(ranks_of_job)" "$@"
