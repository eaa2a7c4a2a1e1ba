# Sourced by jobs/environment.sh: what it needs to know of PBS (OpenPBS, PBS Professional).
# shellcheck shell=bash disable=SC2034,SC2154  # variables that both have

job=${PBS_JOBNAME:-job}
how_to_submit='FEDHPC_RUN="CONFIG.ini [--section.key=value ...]" qsub -v FEDHPC_RUN jobs/NAME.pbs'
restarts=${FEDHPC_RESTARTS:-0}

ranks_of_job() { wc -l <"$PBS_NODEFILE"; }  # a line for each of a chunk's mpiprocs

own_launcher() { echo mpirun; }

start() {
  local nodes
  if [ "$FEDHPC_LAUNCHER" = mpirun ]; then
    hosts=(--hostfile "$PBS_NODEFILE")  # an Open MPI that was built without PBS does not look there by itself
  else
    nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
    hosts=(--ppn $((($1 + nodes - 1) / nodes)))
  fi
  by_mpi "$@"
}

pass_on() { signal_launched; }

# What PBS says of this job; long values go on in lines that begin with a tab.
attributes() { qstat -f "$PBS_JOBID" 2>/dev/null | sed -e ':next' -e '$!{N;b next' -e '}' -e 's/\n\t//g'; }
attribute() { attributes | sed -n "s/^ *$1 = //p"; }

job_state() {
  case $(attribute job_state) in
    R) echo RUNNING ;;
    ?*) echo ENDING ;;
  esac
}

# seconds_left: of the job's time; nothing where it has no limit.
seconds_left() {
  local limit
  limit=$(attribute Resource_List.walltime)
  [ -n "$limit" ] || return 0
  printf '%s %s\n' "$limit" "$(attribute resources_used.walltime)" | awk '
    function seconds(text, part) { return split(text, part, ":") == 3 ? part[1] * 3600 + part[2] * 60 + part[3] : 0 }
    $1 ~ /:/ { print seconds($1) - seconds($2) }'
}

# put_back: the same job once more. qrerun is for operators; a new job has the resources and the names of this one.
put_back() {
  local options=() name value chunks
  chunks=+$(attribute Resource_List.select)
  for name in $(attributes | sed -n 's/^ *Resource_List\.\([^ ]*\) = .*/\1/p'); do
    # Sums over the chunks, which PBS lists as well and refuses beside select.
    case $name in ncpus | nodect | mpiprocs | mem | ngpus | nodes) continue ;; esac
    case $chunks in *[:+]"$name="*) continue ;; esac
    options+=(-l "$name=$(attribute "Resource_List.$name")")
  done
  for name in queue:-q Account_Name:-A project:-P; do
    value=$(attribute "${name%:*}")
    case $value in '' | _pbs_project_default) ;; *) options+=("${name#*:}" "$value") ;; esac
  done
  export FEDHPC_RUN FEDHPC_RESTARTS=$((restarts + 1))
  (cd "$PBS_O_WORKDIR" && qsub -N "$job" ${options[@]+"${options[@]}"} -v "$(compgen -e FEDHPC | paste -sd, -)" "$FEDHPC_HOME/jobs/preemptible.pbs")
}
