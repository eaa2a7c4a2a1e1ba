#!/usr/bin/env bash
# Runs on a machine with a GPU what a machine without one cannot: tests on the card, compute-sanitizer,
# measurements. Goes on after a failure; ends with a table of what passed, failed and was not run.
#
#   bench/on_a_card.sh BUILD OUT [PART...]
#
# BUILD: a built tree (build/release), or `build` in an unpacked bundle of tools/bundle.py. OUT: a folder for
# one log a part, table.txt and the figures. PART: some of the parts below alone, e.g. device_test.
#
# It needs a GPU with its driver, and LibTorch with CUDA of the build's version: FEDHPC_TORCH=FOLDER, or the
# `torch` that python3 imports. Where MPI, HDF5 and Boost are unpacked somewhere: FEDHPC_PREFIX=FOLDER
# (tools/with_libraries.sh). compute-sanitizer, mpirun, nsys and Python's torch are used where they are; a
# part that lacks its tool is NOT RUN. Nothing is installed or changed. FEDHPC_PART_SECONDS limits every
# part (default 300), FEDHPC_BENCH_OPTIONS and FEDHPC_PYTHON_BENCH_OPTIONS go to the measurements.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# -lt 2 ] || [ ! -d "$1" ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | head -n -1
  exit 2
fi
build=$(cd "$1" && pwd)
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
wanted=" $* "
unset FEDHPC_GPU_MODULE  # the card itself
export OMP_NUM_THREADS=1 GTEST_COLOR=no FEDHPC_SOURCE_DIR=${FEDHPC_SOURCE_DIR:-$here}
. "$here/tools/mpi_environment.sh"
seconds=${FEDHPC_PART_SECONDS:-300}
run=$here/run
[ -x "$run" ] || run=$here/tools/with_libraries.sh

names=() verdicts=() remarks=()
note() {
  names+=("$1") verdicts+=("$2") remarks+=("$3")
  printf '%-28s %-8s %s\n' "$1" "$2" "$3"
}
is_wanted() { [ "$wanted" = "  " ] || [[ "$wanted" == *" $1 "* ]]; }

# skip_reason LOG: what the first skipped test says
skip_reason() { grep -aA1 'Skipped$' "$1" | sed -n 2p | cut -c1-100; }
# part NAME PROGRAM [ARGUMENT...]: runs it with a time limit and a log. All tests skipped is NOT RUN.
part() {
  local name=$1 begin=$SECONDS code remark verdict=PASS
  shift
  is_wanted "$name" || return 0
  timeout -k 10 "$seconds" "$@" >"$out/$name.log" 2>&1 </dev/null
  code=$?
  remark="$((SECONDS - begin)) s"
  if [ $code -eq 124 ] || [ $code -eq 137 ]; then
    verdict=FAIL remark="more than $seconds s"
  elif [ $code -eq 77 ]; then
    verdict="NOT RUN" remark="all tests skipped: $(skip_reason "$out/$name.log")"
  elif [ $code -ne 0 ]; then
    verdict=FAIL remark="$remark, code $code: $(grep -aE '\[  FAILED  \]|rror' "$out/$name.log" | tail -n 1 | cut -c1-120)"
  elif grep -aq '^\[  SKIPPED \]' "$out/$name.log"; then
    if grep -aqE '\[  PASSED  \] [1-9]' "$out/$name.log"; then
      remark="$remark, $(grep -acE '^\[  SKIPPED \].*ms\)' "$out/$name.log") skipped"
    else
      verdict="NOT RUN" remark="all tests skipped: $(skip_reason "$out/$name.log")"
    fi
  fi
  note "$name" "$verdict" "$remark"
}
# no NAME REASON
no() { if is_wanted "$1"; then note "$1" "NOT RUN" "$2"; fi; }
# tool NAME [FOLDER...]: where a program is; nothing if nowhere
tool() {
  local name=$1 found
  shift
  for found in "$(command -v "$name" 2>/dev/null)" "${@/%//$name}"; do
    if [ -x "$found" ]; then echo "$found"; return; fi
  done
}
toolkit=${CUDA_HOME:-/usr/local/cuda}
# test_part NAME BINARY [ARGUMENT...]: of the build
test_part() {
  local name=$1 binary=$build/$2
  shift 2
  if [ -x "$binary" ]; then part "$name" "$run" "$binary" "$@"; else no "$name" "$binary is not built"; fi
}
# checked_part NAME SANITIZER BINARY FILTER: under compute-sanitizer
checked_part() {
  local sanitizer
  sanitizer=$(tool compute-sanitizer "$toolkit/bin" "$toolkit/compute-sanitizer")
  if [ -z "$sanitizer" ]; then no "$1" "no compute-sanitizer"; return; fi
  if [ ! -x "$build/$3" ]; then no "$1" "$build/$3 is not built"; return; fi
  part "$1" "$run" "$sanitizer" --tool "$2" --error-exitcode 99 "$build/$3" --gtest_filter="$4"
}
# ranks_part NAME RANKS PROGRAM [ARGUMENT...]
ranks_part() {
  local name=$1 ranks=$2
  shift 2
  if ! "$run" bash -c 'command -v mpirun' >/dev/null 2>&1; then no "$name" "no mpirun"; return; fi
  if [ ! -x "$1" ]; then no "$name" "$1 is not built"; return; fi
  part "$name" "$run" mpirun -n "$ranks" --oversubscribe --bind-to none "$@"
}

# What there is.
{
  date -u
  uname -srm
  nvidia-smi --query-gpu=index,name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv || true
  "$toolkit/bin/nvcc" --version 2>/dev/null | tail -n 2
  cat "$here/bundle.txt" 2>/dev/null
  "$run" "$build/fedhpc" --version
  "$run" bash -c 'command -v mpirun' && "$run" mpirun --version | head -n 1
  python3 -c 'import torch; print("python3: torch", torch.__version__, "CUDA", torch.version.cuda,
              torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no card")'
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"
echo

# Tests on the card.
test_part kernels_test tests/kernels_test --gtest_filter='*/device_*'
test_part device_test tests/device_test
test_part nccl tests/comm_test --gtest_filter='NcclOnACard.*'
# One rank that a launcher has started talks to itself by NCCL.
ranks_part comm_test_1_rank 1 "$build/tests/comm_test" --gtest_filter='NcclOnACard.*'
# Two ranks on one card cannot talk by NCCL: their messages go through pinned memory.
ranks_part comm_test_2_ranks 2 "$build/tests/comm_test" --gtest_filter='NcclOnACard.*'
ranks_part device_test_2_ranks 2 "$build/tests/device_test" --gtest_filter='*EveryAlgorithmOnADevice.EqualsTheHost/fed*'

# Memory errors and races of the kernels; tests of single kernels, and one of a whole training.
checked_part memcheck_kernels memcheck tests/kernels_test '*/device_*'
# Without LibTorch's own cutting up of memory, so that a step beyond a tensor's end is seen.
PYTORCH_NO_CUDA_MEMORY_CACHING=1 checked_part memcheck_tensors memcheck tests/kernels_test '*/device_*'
checked_part synccheck_kernels synccheck tests/kernels_test '*/device_*'
checked_part racecheck_kernels racecheck tests/kernels_test '*/device_*'
checked_part memcheck_training memcheck tests/device_test 'TrainingOnADevice.EqualsTheHostByEveryRule'
checked_part racecheck_training racecheck tests/device_test 'TrainingOnADevice.MovesOnlyTheColumnsItIsToldTo'

# Figures.
if [ -x "$build/bench/device_training" ]; then
  seconds=${FEDHPC_BENCH_SECONDS:-600}
  # shellcheck disable=SC2086
  part device_training "$run" "$build/bench/device_training" --csv "$out/device_training.csv" ${FEDHPC_BENCH_OPTIONS:-}
  # What run.reproducible costs.
  # shellcheck disable=SC2086
  part device_training_reproducible "$run" "$build/bench/device_training" --reproducible true --models dnn,cnn4 \
    --clients 10,100 --csv "$out/device_training_reproducible.csv" ${FEDHPC_BENCH_OPTIONS:-}
  seconds=${FEDHPC_PART_SECONDS:-300}
else
  no device_training "it is not built"
  no device_training_reproducible "it is not built"
fi
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then
  # shellcheck disable=SC2086
  part device_training_py python3 "$here/bench/device_training.py" --csv "$out/device_training_py.csv" \
    ${FEDHPC_PYTHON_BENCH_OPTIONS:-}
else
  no device_training_py "python3 has no torch with a card"
fi

# A run of the program, and the time line of one round.
if [ -x "$build/fedhpc" ]; then
  quick=("$build/fedhpc" run "$here/configs/quickstart.ini" --run.device=cuda "--run.output=$out/quickstart.h5")
  part run "$run" "${quick[@]}"
  nsys=$(tool nsys "$toolkit/bin")
  if [ -n "$nsys" ]; then
    part nsys "$run" "$nsys" profile --force-overwrite true --trace cuda,nvtx,cublas --output "$out/round" \
      "${quick[@]}" --run.rounds=1
    part nsys_kernels "$nsys" stats --report cuda_gpu_kern_sum,nvtx_sum "$out/round.nsys-rep"
  else
    no nsys "no nsys"
  fi
else
  no run "the program is not built"
fi

echo
for i in "${!names[@]}"; do
  printf '%-28s %-8s %s\n' "${names[$i]}" "${verdicts[$i]}" "${remarks[$i]}"
done >"$out/table.txt"
cat "$out/table.txt"
# Code 0: something passed and nothing failed.
grep -q ' PASS ' "$out/table.txt" && ! grep -q ' FAIL ' "$out/table.txt"
