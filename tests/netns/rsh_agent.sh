#!/usr/bin/env bash
# rsh_agent.sh [OPTIONS] HOST COMMAND...: runs a shell command on one of the hosts that netns_support.py has
# made, as ssh would; for mpirun's plm_rsh_agent. FEDHPC_HOSTS names the folder of the hosts.
set -eu
while [[ "${1:-}" == -* ]]; do shift; done
host=$1
shift
pid=$(<"$FEDHPC_HOSTS/$host.pid")
export TMPDIR="$FEDHPC_HOSTS/$host"  # Open MPI keeps its sockets there
exec nsenter --target "$pid" --net --uts --mount -- /bin/sh -c "$*"
