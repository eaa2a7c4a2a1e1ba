#!/bin/bash
# One run on several nodes, a rank to each slot, which is a core or, with --gpus-per-slot=1, a core and a GPU:
#
#   flux batch [--nodes=4 --nslots=64] [--gpus-per-slot=1] jobs/multi_node.flux.sh CONFIG.ini [--section.key=value ...]
#
# Ranks are placed node by node, so that the ranks of an edge share a node where they can. The result file and its
# checkpoints are written by rank 0, in the folder flux was called in: it has to be one that all nodes see.
# Interrupted and taken up as jobs/single_node.flux.sh; settings of the cluster: jobs/environment.sh.
# flux: --job-name=fedhpc
# flux: --nodes=2
# flux: --nslots=8
# flux: --time-limit=60m
# flux: --output=fedhpc-{{id}}.out
set -u
FEDHPC_SCHEDULER=flux
FEDHPC_HOME=${FEDHPC_HOME:-$PWD}  # Flux runs a copy of this script, in the folder it was submitted in
. "$FEDHPC_HOME/jobs/environment.sh" || { echo "fedhpc job: set FEDHPC_HOME to the project's folder" >&2; exit 2; }

run_once "$(ranks_of_job)" "$@"
