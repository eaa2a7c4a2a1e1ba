#!/usr/bin/env bash
# Starts a program of a build where its libraries lie in no usual place:
#
#   tools/with_libraries.sh PROGRAM [ARGUMENT...]
#
#   FEDHPC_TORCH   LibTorch (a folder with lib/); else that of the `torch` which python3 imports
#   FEDHPC_PREFIX  a folder with other libraries in lib/, usr/lib/... (packages unpacked there), and Open MPI
#                  in mpi/ or usr/; in a bundle of tools/bundle.py, where this is `run`, the bundle itself
#
# The program alone sees these libraries: what else runs here keeps its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | head -n -1; exit 2; }
prefix=${FEDHPC_PREFIX:-}
[ -z "$prefix" ] && [ -e "$here/bundle.txt" ] && prefix=$here

torch=${FEDHPC_TORCH:-}
if [ -z "$torch" ]; then
  # Found without importing it, which takes seconds.
  torch=$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0])' \
          2>/dev/null || true)
fi

folders=()
add() {
  local folder
  for folder in "$@"; do
    if [ -d "$folder" ]; then folders+=("$folder"); fi
  done
}
if [ -n "$prefix" ]; then
  add "$prefix/build" "$prefix/lib" "$prefix"/{usr/,}lib/*-linux-gnu{,/openmpi/lib,/hdf5/serial,/pmix2/lib} "$prefix"/usr/lib
  # A libstdc++ of the bundle's only where the machine's is older.
  if [ -d "$prefix/lib/libstdc++" ]; then
    wanted=$(cat "$prefix/lib/libstdc++/version")
    own=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | sed -n 's/.*libstdc++.so.6 .*x86-64.*=> //p' |
      head -n 1) || own=
    if [ -z "$own" ] || ! grep -aqF "$wanted" "$own"; then add "$prefix/lib/libstdc++"; fi
  fi
  for mpi in "$prefix/mpi" "$prefix/usr"; do
    if [ -x "$mpi/bin/orterun" ]; then
      export OPAL_PREFIX=$mpi PATH=$mpi/bin:$PATH
      export PMIX_INSTALL_PREFIX=$mpi/lib/x86_64-linux-gnu/pmix2
      break
    fi
  done
fi
if [ -n "$torch" ]; then add "$torch/lib" "$torch"/../nvidia/*/lib; fi
libraries=$(IFS=:; echo "${folders[*]}")
[ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
