# Sourced by jobs/environment.sh: what it needs to know of Flux. The script runs in an instance of its own, whose jobs
# are the runs; `flux --parent` speaks to the instance that runs the script.
# shellcheck shell=bash disable=SC2034,SC2154  # variables that both have

job=fedhpc
how_to_submit='flux batch jobs/NAME.flux.sh CONFIG.ini [--section.key=value ...]'
restarts=${FEDHPC_RESTARTS:-0}
flux_job=

# asked_for TYPE: how many slots or GPUs the job was submitted for; nothing where the parent does not say. The instance may
# have more: all cores of its nodes, where a site gives whole nodes.
asked_for() {
  flux --parent job info --original "$FLUX_ENCLOSING_ID" jobspec 2>/dev/null | flux python -c '
import json, sys
def count(resources):
    return sum(one["count"] * ((one["type"] == sys.argv[1]) + count(one.get("with", []))) for one in resources)
print(count(json.load(sys.stdin)["resources"]))' "$1" 2>/dev/null
}

ranks_of_job() {
  local slots
  slots=$(asked_for slot)
  printf '%s\n' "${slots:-$(flux resource list -s all -no '{ncores}')}"
}

own_launcher() { echo flux; }

start() {
  local ranks=$1 gpus
  if [ "$FEDHPC_LAUNCHER" != flux ]; then
    by_mpi "$@"
    return
  fi
  shift
  gpus=$(asked_for gpu)
  if [ "${gpus:-$(flux resource list -s all -no '{ngpus}')}" = 0 ]; then gpus=(); else gpus=(-g 1 -o gpu-affinity=per-task); fi
  flux_job=$(flux submit -n "$ranks" -c 1 -o cpu-affinity=per-task ${gpus[@]+"${gpus[@]}"} \
    ${FEDHPC_MPI:+-o "pmi=$FEDHPC_MPI"} \
    ${launch_options[@]+"${launch_options[@]}"} "$@")
  flux job attach "$flux_job" &
  launched=$!
}

# pass_on: a job takes a signal once it runs.
pass_on() {
  local look
  if [ -z "$flux_job" ]; then
    signal_launched
    return
  fi
  for look in 1 2 3 4 5 6 7 8 9 10; do
    ! flux job kill --signal=SIGUSR1 "$flux_job" 2>/dev/null || return 0
    kill -0 "$launched" 2>/dev/null || return 0
    sleep 0.5
  done
  say "the run has not taken the signal in $look looks"
}

job_state() {
  case $(flux --parent jobs -no '{state}' "$FLUX_ENCLOSING_ID" 2>/dev/null) in
    RUN) echo RUNNING ;;
    ?*) echo ENDING ;;
  esac
}

seconds_left() { flux job timeleft 2>/dev/null; }  # of one that has only begun: all it has

# put_back: the same job once more, with the resources, the script and the environment it was submitted with.
put_back() {
  flux --parent job info --original "$FLUX_ENCLOSING_ID" jobspec |
    sed -e 's/"FEDHPC_RESTARTS": *"[0-9]*", *//' \
      -e "s/\"environment\": *{/&\"FEDHPC_RESTARTS\": \"$((restarts + 1))\", /" |
    flux --parent job submit
}
