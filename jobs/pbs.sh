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
attributes() {
  local said
  said=$(qstat -f "$PBS_JOBID" 2>/dev/null) || return
  sed -e ':next' -e '$!{N;b next' -e '}' -e 's/\n\t//g' <<<"$said"
}
attribute() { sed -n "s/^ *$1 = //p" <<<"$2"; }  # NAME, what attributes says

job_state() {
  case $(attribute job_state "$(attributes)") in
    R) echo RUNNING ;;
    ?*) echo ENDING ;;
  esac
}

seconds_left() {
  local said limit
  said=$(attributes) || return
  limit=$(attribute Resource_List.walltime "$said")
  printf '%s %s\n' "${limit:-none}" "$(attribute resources_used.walltime "$said")" | awk '
    function seconds(text, part) { return split(text, part, ":") == 3 ? part[1] * 3600 + part[2] * 60 + part[3] : 0 }
    $1 == "none" { print }
    $1 ~ /:/ { left = seconds($1) - seconds($2); print (left > 0 ? left : 0), seconds($1) }'
}

# put_back: the same job once more. qrerun is for operators; a new job has the resources and the names of this one, and
# the variables that came with it.
put_back() {
  local said options=() name value chunks given
  said=$(told attributes)
  if [ -z "$said" ]; then
    say "qstat does not tell the job's resources; it is not submitted again without them"
    return 1
  fi
  chunks=+$(attribute Resource_List.select "$said")
  for name in $(printf '%s\n' "$said" | sed -n 's/^ *Resource_List\.\([^ ]*\) = .*/\1/p'); do
    # Sums over the chunks, which PBS lists as well and refuses beside select.
    case $name in ncpus | nodect | mpiprocs | mem | ngpus | nodes) continue ;; esac
    case $chunks in *[:+]"$name="*) continue ;; esac
    options+=(-l "$name=$(attribute "Resource_List.$name" "$said")")
  done
  for name in queue:-q Account_Name:-A project:-P; do
    value=$(attribute "${name%:*}" "$said")
    case $value in '' | _pbs_project_default) ;; *) options+=("${name#*:}" "$value") ;; esac
  done
  export FEDHPC_RUN FEDHPC_RESTARTS=$((restarts + 1))
  # Names alone: qsub takes the values from here, commas and all. PBS_* are its own.
  given=$(attribute Variable_List "$said" | tr , '\n' | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p' | paste -sd'|' -)
  given=$(compgen -e | grep -xE "FEDHPC.*|$given" | grep -v '^PBS_' | paste -sd, -)
  (cd "$PBS_O_WORKDIR" && qsub -N "$job" ${options[@]+"${options[@]}"} -v "$given" "$FEDHPC_HOME/jobs/preemptible.pbs")
}
