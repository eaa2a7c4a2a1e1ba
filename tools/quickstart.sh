#!/usr/bin/env bash
# From a fresh clone to a first result: sets up, builds, trains hierarchical FedAvg on built-in data on 4
# ranks, one per edge, and draws the result. Leaves results/quickstart.h5, results/quickstart.png and
# results/quickstart_seconds.png.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/build.sh release fedhpc_app
. tools/mpi_environment.sh
mpirun -n 4 build/release/fedhpc run configs/quickstart.ini --force --run.output=results/quickstart.h5
tools/plot.py results/quickstart.h5 --force --output results/quickstart.png
tools/plot.py results/quickstart.h5 --against seconds --force \
    --output results/quickstart_seconds.png
