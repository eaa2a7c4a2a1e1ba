#!/usr/bin/env bash
# Sets up, configures and builds one preset (default: release): tools/build.sh [PRESET] [CMAKE TARGETS...]
set -euo pipefail
[ -z "${FEDHPC_TORCH:-}" ] || FEDHPC_TORCH=$(realpath "$FEDHPC_TORCH")
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
tools/setup.sh
log=$(mktemp)
if ! cmake --preset "$preset" ${FEDHPC_TORCH:+-DFEDHPC_TORCH="$FEDHPC_TORCH"} >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
rm -f "$log"
cmake --build --preset "$preset" ${1:+--target "$@"}
