#!/usr/bin/env bash
# Feeds random bytes to every byte-level reader with the address and undefined-behaviour sanitizers on.
#
#   tools/fuzz.sh [SECONDS] [READER...]   SECONDS [60] for each of: idx cifar mat csv libsvm jpeg gzip xz codecs model
#
# Needs clang with libFuzzer (Debian: clang-14 and libclang-rt-14-dev). FEDHPC_CLANG names another compiler.
# Inputs that reached new code stay in build/fuzz/corpus and are where the next run starts; an input that
# breaks a reader is kept in build/fuzz/findings and named, and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: tools/fuzz.sh [SECONDS] [READER...]" >&2
  exit 2
fi
shift || true
readers=("$@")
[ ${#readers[@]} -gt 0 ] || readers=(idx cifar mat csv libsvm jpeg gzip xz codecs model)
longest=4096  # bytes of an input; packed data may grow a thousandfold

compiler=${FEDHPC_CLANG:-}
for candidate in clang++ clang++-18 clang++-16 clang++-14; do
  [ -n "$compiler" ] || compiler=$(command -v "$candidate" || true)
done
if [ -z "$compiler" ]; then
  echo "fuzz: no clang found; install clang or set FEDHPC_CLANG" >&2
  exit 2
fi

mkdir -p build/fuzz/findings
log=build/fuzz/configure.log
cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DFEDHPC_FUZZ=ON \
  -DFEDHPC_CUDA=OFF -DCMAKE_BUILD_TYPE=Release >"$log" 2>&1 ||
  { cat "$log" >&2; exit 1; }
cmake --build build/fuzz --target "${readers[@]/#/fuzz_}"

status=0
for reader in "${readers[@]}"; do
  mkdir -p "build/fuzz/corpus/$reader"
  log=build/fuzz/$reader.log
  if build/fuzz/fuzz/fuzz_"$reader" -max_total_time="$seconds" -max_len="$longest" -timeout=10 \
    -rss_limit_mb=3072 -artifact_prefix="build/fuzz/findings/$reader-" -print_final_stats=1 \
    "build/fuzz/corpus/$reader" tests/fuzz/seeds/"$reader" >"$log" 2>&1; then
    echo "fuzz: $reader: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no finding"
  else
    echo "fuzz: $reader: FINDING, see $log:" >&2
    grep -E 'SUMMARY|Test unit written' "$log" >&2 || tail -n 5 "$log" >&2
    status=1
  fi
done
exit $status
