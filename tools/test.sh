#!/usr/bin/env bash
# Sets up, builds and runs every test. Arguments go to ctest: tools/test.sh -R fedavg
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${FEDHPC_PRESET:-release}
tools/build.sh "$preset"
. tools/mpi_environment.sh
export FEDHPC_DATA=${FEDHPC_DATA:-$PWD/../shared/data}
ctest --preset "$preset" -j "$(nproc)" "$@"
