#!/usr/bin/env bash
# Sets up, builds and tests: tools/test.sh [--all] [ARGUMENTS OF CTEST]
#   (nothing)       the short suite, what a change can break: ten minutes on two cores once all is built
#   --all           every test on one rank, half of them and all that are about ranks on one number of several, and half a
#                   minute of each campaign; with PyTorch for the tests that compare with it, which the short suite takes
#                   only where it is there
#   -R fedavg, ...  these tests, each on every number of ranks
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${FEDHPC_PRESET:-release}
cores=$(env -u OMP_NUM_THREADS nproc)  # nproc prints that variable where it is set
jobs=$((2 * cores))                    # half of the tests' time is waiting
export FEDHPC_TESTS=every
select=("$@") torch=
if [ $# = 0 ]; then
  FEDHPC_TESTS=short
  select=(-LE long)
elif [ "$1" = --all ]; then
  FEDHPC_TESTS=all
  select=("${@:2}")
  torch=--torch
fi
tools/setup.sh --develop ${torch:+$torch}
tools/build.sh "$preset"
. tools/mpi_environment.sh
export FEDHPC_DATA=${FEDHPC_DATA:-$PWD/../shared/data}
failed=0
ctest --preset "$preset" -j "$jobs" "${select[@]}" || failed=$?
if [ $failed != 0 ]; then  # what failed, once more at the end: where GoogleTest says so, and the last words
  awk '/^[0-9]+\/[0-9]+ Testing: / { name = $3; said = ""; kept = 0; split("", last) }
       /: Failure$/ { kept = 5 }
       kept-- > 0 { said = said $0 "\n" }
       /^Test Failed/ { print "== " name; printf "%s", said; for (i = 20; i > 0; --i) if ((NR - i) % 20 in last) print last[(NR - i) % 20] }
       { last[NR % 20] = $0 }' "build/$preset/Testing/Temporary/LastTest.log" || true
  exit $failed
fi
if [ "$FEDHPC_TESTS" = short ]; then
  long=$(ctest --preset "$preset" -N -L long | sed -n 's/.*Test *#[0-9]*: //p' | paste -sd ' ')
  echo "Left out: $long; tests of algorithms, conformance, devices and the engine ran on one number of ranks each," \
       "some on none. tools/test.sh --all runs all."
elif [ "$FEDHPC_TESTS" = all ]; then
  echo "Left out: tests of algorithms, conformance and devices on more than one number of several ranks, and half of those that" \
       "are not about ranks on any; tools/test.sh -R 'algorithms|conformance|device_' runs each on every one."
fi
