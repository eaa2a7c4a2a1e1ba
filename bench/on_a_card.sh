#!/usr/bin/env bash
# Runs on a machine with a GPU what a machine without one cannot: tests on the card, compute-sanitizer,
# measurements. Goes on after a failure; ends with a table of what passed, failed and was not run.
#
#   bench/on_a_card.sh BUILD OUT [PART...]
#
# BUILD: a built tree (build/release), or `build` in an unpacked bundle of tools/bundle.py. OUT: a folder for
# one log a part, table.txt and the figures. OUT.tar.gz holds it all but what is large, anew after every part.
# PART: some of the parts below alone. What comes before an underscore (smoke, memcheck) stands for all that begin
# so. Where a smoke part fails, no other part runs.
#
# It needs a GPU with its driver, and LibTorch with CUDA of the build's version: FEDHPC_TORCH=FOLDER, or the
# `torch` that python3 imports. Where MPI, HDF5 and Boost are unpacked somewhere: FEDHPC_PREFIX=FOLDER
# (tools/with_libraries.sh). compute-sanitizer, mpirun, nsys, ncu and Python's torch are used where they are; a
# part that lacks its tool, or may not use it, is NOT RUN. Nothing is installed or changed.
# FEDHPC_PART_SECONDS limits every part (default 300) and FEDHPC_CARD_SECONDS all together (default 540);
# FEDHPC_SHARDS is the number of processes that share a test (default: the cores, 12 at most).
# FEDHPC_BENCH_OPTIONS and FEDHPC_PYTHON_BENCH_OPTIONS go to the measurements, behind the options they have here.
set -uo pipefail

# --shards N PROGRAM [ARGUMENT...]: the tests of a program in N processes, their logs one after the other.
# Code 77: all skipped their tests.
if [ "${1:-}" = --shards ]; then
  export GTEST_TOTAL_SHARDS=$2 GTEST_SHARD_INDEX
  shift 2
  logs=$(mktemp -d) all_jobs=()
  # shellcheck disable=SC2154
  trap 'kill $(jobs -p) 2>/dev/null; cat "$logs"/* 2>/dev/null; rm -rf "$logs"' EXIT
  trap 'trap "" TERM INT; exit 124' TERM INT  # timeout sends it twice
  for ((GTEST_SHARD_INDEX = 0; GTEST_SHARD_INDEX < GTEST_TOTAL_SHARDS; ++GTEST_SHARD_INDEX)); do
    "$@" >"$logs/$(printf %03d "$GTEST_SHARD_INDEX")" 2>&1 </dev/null &
    all_jobs+=($!)  # jobs -p forgets one that ends before the next begins
  done
  all=77
  for job in "${all_jobs[@]}"; do
    wait "$job"
    code=$?
    if [ "$all" -eq 77 ] || { [ "$all" -eq 0 ] && [ $code -ne 77 ]; }; then all=$code; fi
  done
  exit "$all"
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ $# -lt 2 ] || [ ! -d "$1" ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | head -n -1
  exit 2
fi
# In their order: what shows the most in a short time comes first.
parts=(smoke_libraries smoke_run smoke_step convolutions kernels_test device_training device_training_reproducible
  memcheck_kernels memcheck_tensors racecheck_kernels synccheck_kernels device_test comm_test_2_ranks
  device_test_2_ranks nccl memcheck_training racecheck_training device_training_py nsys nsys_kernels ncu)
wanted=" "
for name in "${@:3}"; do
  found=$(compgen -W "${parts[*]}" -- "${name}_")
  if [[ " ${parts[*]} " == *" $name "* ]]; then found=$name; fi
  if [ -z "$found" ]; then echo "on_a_card.sh: no part is '$name' or begins so; there are: ${parts[*]}" >&2; exit 2; fi
  wanted+="${found//$'\n'/ } "
done
if [ $# -eq 2 ]; then wanted=" ${parts[*]} "; fi
build=$(cd "$1" && pwd)
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
unset FEDHPC_GPU_MODULE  # the card itself
export OMP_NUM_THREADS=1 GTEST_COLOR=no FEDHPC_SOURCE_DIR=${FEDHPC_SOURCE_DIR:-$here}
. "$here/tools/mpi_environment.sh"
seconds=${FEDHPC_PART_SECONDS:-300}
budget=${FEDHPC_CARD_SECONDS:-540}
cores=$(nproc)
shards=${FEDHPC_SHARDS:-$((cores < 12 ? cores : 12))}
run=$here/run
[ -x "$run" ] || run=$here/tools/with_libraries.sh

# Archives travel: what is above 4 MiB stays and is named, but for logs, whose ends come along.
pack() (
  name=$(basename "$out")
  cd "$(dirname "$out")" || exit
  find "$name" -name '*.log' -size +4M | while read -r log; do tail -c 1M "$log" >"$log.end"; done
  find "$name" -type f -size +4M >"$name/left_out.txt"
  [ -s "$name/left_out.txt" ] || rm "$name/left_out.txt"
  find "$name" -type f ! -size +4M -print0 | tar -czf "$name.tar.gz.new" --null -T -
  [ $? -le 1 ] && mv "$name.tar.gz.new" "$name.tar.gz"  # 1: a file was still written to
)
trap pack EXIT
# timeout, which gives a part a process group of its own, hands it the signal. It may come twice.
trap 'trap "" TERM INT HUP; kill $(jobs -p) 2>/dev/null && wait; exit 124' TERM INT HUP

note() { printf '%-28s %-8s %s\n' "$1" "$2" "$3" | tee -a "$out/table.txt"; }
: >"$out/table.txt"
is_wanted() { [[ "$wanted" == *" $1 "* ]]; }

# skip_reason LOG: what the first skipped test says
skip_reason() { grep -aA1 'Skipped$' "$1" | sed -n 2p | cut -c1-100; }
# broken LOG: lines that fail a part whatever its code: not measured, but for want of room, or not captured
broken() {
  grep -aE 'not measured:|not captured as CUDA graphs|No step of the line above' "$1" |
    grep -avE 'not measured: .*(needs [0-9]+ MB|out of memory)'
}
# reason LOG: the last line that says why a part has failed, or the last one
reason() { { broken "$1" || grep -aE '\[  FAILED  \]|rror' "$1" || grep -a . "$1"; } | tail -n 1 | cut -c1-120; }
# part NAME PROGRAM [ARGUMENT...]: runs it with a time limit and a log. All tests skipped is NOT RUN.
part() {
  local name=$1 begin=$SECONDS code remark verdict=PASS limit=$seconds
  shift
  is_wanted "$name" || return 0
  if [ $((budget - SECONDS)) -lt "$limit" ]; then limit=$((budget - SECONDS)); fi
  if [ "$limit" -lt 1 ]; then note "$name" "NOT RUN" "no time is left of $budget s"; return; fi
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null &
  wait $!
  code=$?
  remark="$((SECONDS - begin)) s"
  if { [ $code -eq 124 ] || [ $code -eq 137 ]; } && [ $((SECONDS - begin)) -ge "$limit" ]; then
    verdict=FAIL remark="more than $limit s"
  elif [ $code -eq 77 ]; then
    verdict="NOT RUN" remark="all tests skipped: $(skip_reason "$out/$name.log")"
  elif [ "$name" = ncu ] && grep -aq ERR_NVGPUCTRPERM "$out/$name.log"; then
    verdict="NOT RUN" remark="ERR_NVGPUCTRPERM: this user may not read the card's counters"
  elif [ $code -ne 0 ] || [ -n "$(broken "$out/$name.log")" ]; then
    if [ $code -eq 137 ]; then remark="$remark, killed"; fi  # not by timeout: the host's memory was full
    verdict=FAIL remark="$remark, code $code: $(reason "$out/$name.log")"
  elif grep -aq '^\[  SKIPPED \]' "$out/$name.log"; then
    if grep -aqE '\[  PASSED  \] [1-9]' "$out/$name.log"; then
      remark="$remark, $(grep -acE '^\[  SKIPPED \].*ms\)' "$out/$name.log") skipped"
    else
      verdict="NOT RUN" remark="all tests skipped: $(skip_reason "$out/$name.log")"
    fi
  fi
  note "$name" "$verdict" "$remark"
  pack
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
# test_part NAME BINARY [ARGUMENT...]: of the build, by all shards
test_part() {
  local name=$1 binary=$build/$2
  shift 2
  if [ -x "$binary" ]; then part "$name" "$run" bash "${BASH_SOURCE[0]}" --shards "$shards" "$binary" "$@"
  else no "$name" "$binary is not built"; fi
}
# checked_part NAME SANITIZER BINARY FILTER [OPTION...]: under compute-sanitizer, by all shards
checked_part() {
  local name=$1 kind=$2 binary=$build/$3 filter=$4 sanitizer
  shift 4
  sanitizer=$(tool compute-sanitizer "$toolkit/bin" "$toolkit/compute-sanitizer")
  if [ -z "$sanitizer" ]; then no "$name" "no compute-sanitizer"; return; fi
  if [ ! -x "$binary" ]; then no "$name" "$binary is not built"; return; fi
  part "$name" "$run" bash "${BASH_SOURCE[0]}" --shards "$shards" "$sanitizer" --tool "$kind" --error-exitcode 99 "$@" \
    "$binary" --gtest_filter="$filter"
}
# ranks_part NAME RANKS PROGRAM [ARGUMENT...]
ranks_part() {
  local name=$1 ranks=$2
  shift 2
  if ! "$run" bash -c 'command -v mpirun' >/dev/null 2>&1; then no "$name" "no mpirun"; return; fi
  if [ ! -x "$1" ]; then no "$name" "$1 is not built"; return; fi
  part "$name" "$run" mpirun -n "$ranks" "$@"
}

# Code 0: something passed and nothing failed.
end() {
  echo
  cat "$out/table.txt"
  grep -q ' PASS ' "$out/table.txt" && ! grep -q ' FAIL ' "$out/table.txt"
  exit
}

# What there is. A card that is broken may not answer.
{
  date -u
  uname -srm
  timeout 60 nvidia-smi --query-gpu=index,name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv || true
  "$toolkit/bin/nvcc" --version 2>/dev/null | tail -n 2
  cat "$here/bundle.txt" 2>/dev/null
  timeout 60 "$run" "$build/fedhpc" --version
  "$run" bash -c 'command -v mpirun' && timeout 60 "$run" mpirun --version | head -n 1
  is_wanted device_training_py && timeout 60 python3 -c 'import torch
print("python3: torch", torch.__version__, "CUDA", torch.version.cuda,
      "on " + torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no card")'
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"
echo

# Does anything run at all? The loader finds every library, the program trains, a step is measured.
quick=("$build/fedhpc" run "$here/configs/quickstart.ini" --run.device=cuda "--run.output=$out/quickstart.h5")
if [ -x "$build/fedhpc" ]; then
  # shellcheck disable=SC2016
  part smoke_libraries "$run" bash -c '
    for file in "$@"; do
      [ -e "$file" ] || continue
      missing=$(ldd "$file" | grep "not found") && { echo "$file: error: $missing"; failed=1; }
    done
    exit ${failed:-0}' bash "$build"/{fedhpc,libfedhpc.so,libfedhpc_gpu.so,libfedhpc_kernels.so}
  part smoke_run "$run" "${quick[@]}"
  if [ -x "$build/bench/device_training" ]; then
    part smoke_step "$run" "$build/bench/device_training" --models dnn --clients 10 --precision fp32 --seconds 0.1 --loop_clients 1
  else
    no smoke_step "it is not built"
  fi
else
  no smoke_libraries "the program is not built"
  no smoke_run "the program is not built"
fi
if grep -qE '^smoke_\w+ +FAIL ' "$out/table.txt"; then
  for name in "${parts[@]:3}"; do no "$name" "a smoke part has failed"; done
  end
fi

# What every way of computing a convolution takes.
if [ -x "$build/fedhpc" ]; then
  part convolutions "$run" "${quick[@]}" --run.rounds=1 --model.name=cnn4 --run.log_level=debug
fi

test_part kernels_test tests/kernels_test --gtest_filter='*/device_*'

# Figures: those of RESULTS.md. Of an option that is given twice the last counts.
# shellcheck disable=SC2054
figures=(--models dnn,cnn4 --clients 1,10,100 --precision fp32,tf32 --seconds 0.3)
if [ -x "$build/bench/device_training" ]; then
  # shellcheck disable=SC2086
  part device_training "$run" "$build/bench/device_training" "${figures[@]}" --loop_clients 3 \
    --csv "$out/device_training.csv" ${FEDHPC_BENCH_OPTIONS:-}
  # What run.reproducible costs.
  # shellcheck disable=SC2086
  part device_training_reproducible "$run" "$build/bench/device_training" "${figures[@]}" --loop_clients 3 \
    --precision fp32 --reproducible true --csv "$out/device_training_reproducible.csv" ${FEDHPC_BENCH_OPTIONS:-}
else
  no device_training "it is not built"
  no device_training_reproducible "it is not built"
fi

# Memory errors and races of the kernels, by tests of single ones. A capture that is given up is an error of CUDA's
# by intent. What cuBLAS and LibTorch do is theirs.
kernels='*/device_*:-*WorkThatWaitsCannotBeCaptured*'
own=(--kernel-name kns=fedhpc)
checked_part memcheck_kernels memcheck tests/kernels_test "$kernels"
# Without LibTorch's own cutting up of memory, so that a step beyond a tensor's end is seen.
PYTORCH_NO_CUDA_MEMORY_CACHING=1 checked_part memcheck_tensors memcheck tests/kernels_test "$kernels"
checked_part racecheck_kernels racecheck tests/kernels_test "$kernels" "${own[@]}"
checked_part synccheck_kernels synccheck tests/kernels_test "$kernels" "${own[@]}"

# The other tests on the card. Two ranks on it cannot talk by NCCL: their messages go through pinned memory.
test_part device_test tests/device_test
ranks_part comm_test_2_ranks 2 "$build/tests/comm_test" --gtest_filter='NcclOnACard.*'
ranks_part device_test_2_ranks 2 "$build/tests/device_test" --gtest_filter='*EveryAlgorithmOnADevice.EqualsTheHost/fed*'
shards=1
test_part nccl tests/comm_test --gtest_filter='NcclOnACard.*'

# A whole training, a single test each: a process without one would end before the sanitizer has seen anything.
checked_part memcheck_training memcheck tests/device_test 'TrainingOnADevice.EqualsTheHostByEveryRule'
checked_part racecheck_training racecheck tests/device_test 'TrainingOnADevice.MovesOnlyTheColumnsItIsToldTo' "${own[@]}"

# The loop over clients in plain PyTorch.
if grep -q '^python3: torch .* on ' "$out/machine.txt"; then
  # shellcheck disable=SC2086
  part device_training_py python3 "$here/bench/device_training.py" "${figures[@]}" --clients 10 \
    --csv "$out/device_training_py.csv" ${FEDHPC_PYTHON_BENCH_OPTIONS:-}
else
  no device_training_py "python3 has no torch with a card"
fi

# The time line of one round, and counters of its kernels.
if [ -x "$build/fedhpc" ]; then
  nsys=$(tool nsys "$toolkit/bin")
  if [ -n "$nsys" ]; then
    part nsys "$run" "$nsys" profile --force-overwrite true --trace cuda,nvtx,cublas --cuda-graph-trace node \
      --output "$out/round" "${quick[@]}" --run.rounds=1
    part nsys_kernels "$nsys" stats --report cuda_gpu_kern_sum,nvtx_sum "$out/round.nsys-rep"
  else
    no nsys "no nsys"
    no nsys_kernels "no nsys"
  fi
  ncu=$(tool ncu "$toolkit/bin")
  if [ -n "$ncu" ]; then
    part ncu "$run" "$ncu" --clock-control none --launch-skip 200 --launch-count 100 --section SpeedOfLight \
      --section LaunchStats --page details --csv "${quick[@]}" --run.rounds=1
  else
    no ncu "no ncu"
  fi
fi

end
