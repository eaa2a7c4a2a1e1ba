#!/usr/bin/env bash
# Packs the Python package as a wheel for other machines: tools/wheel.sh [FOLDER] (default: build)
#
# LibTorch, HDF5, Boost and the compression libraries are in it; MPI is not, as it has to be the cluster's own.
set -euo pipefail
folder=$(realpath -m "${1:-$(dirname "$0")/../build}")
cd "$(dirname "$0")/.."
tools/setup.sh --develop >&2
PATH=$PWD/.deps/venv/bin:$PATH
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
python -m pip wheel . -q --disable-pip-version-check --no-deps --no-build-isolation -w "$raw"
# Modules for GPUs take CUDA and its libraries from the Python package torch.
if ! python -m auditwheel repair --exclude 'libmpi*' --exclude 'libtorch_cuda*' --exclude 'libc10_cuda*' --exclude 'libcublas*' \
  --exclude 'libnccl*' -w "$folder" "$raw"/fedhpc-*.whl >"$raw/log" 2>&1; then
  cat "$raw/log" >&2
  exit 1
fi
ls -t "$folder"/fedhpc-*.whl | head -n 1
