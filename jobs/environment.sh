# Sourced by the job scripts: where the program is, MPI's settings, how ranks are started, and a run that is
# taken up where it was. What a cluster may need to change, all by variables of the environment:
#
#   FEDHPC               the program [$FEDHPC_HOME/build/release/fedhpc, else fedhpc on the PATH]
#   FEDHPC_HOME          the project's folder [the folder sbatch was called in]
#   FEDHPC_MODULES       modules to load, such as "gcc openmpi" [none]
#   FEDHPC_LAUNCHER      srun or mpirun [srun where it can start MPI programs by PMIx]
#   FEDHPC_MAX_RESTARTS  how often a job may requeue itself [100]
#   FEDHPC_DATA          folder of the data sets, as for every run
#
# Nothing is fetched and no daemon is started. Exit codes of the program: docs/how-to/run.md.

if [ $# -eq 0 ]; then  # the job script's own arguments
  echo "${SLURM_JOB_NAME:-job}: nothing to run; sbatch jobs/NAME.sbatch CONFIG.ini [--section.key=value ...]" >&2
  exit 2
fi

if [ -n "${FEDHPC_MODULES:-}" ]; then
  read -r -a modules <<<"$FEDHPC_MODULES"
  module load "${modules[@]}"
fi

if [ -z "${FEDHPC:-}" ]; then
  FEDHPC=$FEDHPC_HOME/build/release/fedhpc
  [ -x "$FEDHPC" ] || FEDHPC=$(command -v fedhpc || true)
fi
if [ ! -x "${FEDHPC:-}" ]; then
  echo "${SLURM_JOB_NAME:-job}: no program '$FEDHPC'; build it (tools/build.sh) or set FEDHPC to it" >&2
  exit 2
fi

# A rank is one thread: what is parallel are the ranks.
export OMP_NUM_THREADS=1

# A cut link. MPI itself never reports one: the program gives up when no rank has got on for
# run.collective_timeout seconds (600 unless given) and ends with 1, which does not requeue. SLURM knows a lost node
# after its SlurmdTimeout (300 s by default) and requeues the job by itself: keep the former the longer one. mpirun
# would notice after 300 + 9 x 20 s of silence on its own connections; this makes it 30 + 3 x 10 s.
export OMPI_MCA_oob_tcp_keepalive_time=${OMPI_MCA_oob_tcp_keepalive_time:-30}
export OMPI_MCA_oob_tcp_keepalive_intvl=${OMPI_MCA_oob_tcp_keepalive_intvl:-10}
export OMPI_MCA_oob_tcp_keepalive_probes=${OMPI_MCA_oob_tcp_keepalive_probes:-3}

if [ -z "${FEDHPC_LAUNCHER:-}" ]; then
  FEDHPC_LAUNCHER=mpirun
  case $(srun --mpi=list 2>&1) in *pmix*) FEDHPC_LAUNCHER=srun ;; esac
fi

say() { printf '%s %s: %s\n' "$(date '+%F %T')" "${SLURM_JOB_NAME:-job}" "$1"; }

# value_in FILE SECTION KEY: what an INI file says; SECTION may be empty, for what stands before the first.
value_in() {
  awk -F= -v wanted="$2" -v key="$3" '
    /^[[:space:]]*\[/ { section = $0; sub(/#.*/, "", section); gsub(/[][[:space:]]/, "", section) }
    section == wanted && $1 ~ "^[[:space:]]*" key "[[:space:]]*$" {
      sub(/^[^=]*=[[:space:]]*/, "")
      if (!sub(/^"/, "")) { sub(/#.*/, ""); sub(/[[:space:]]+$/, ""); print; next }
      for (text = ""; $0 != "" && !/^"/; $0 = substr($0, 2)) {  # quoted: a backslash takes the next character
        if (/^\\/) $0 = substr($0, 2)
        text = text substr($0, 1, 1)
      }
      print text }' "$1"
}

# stem_of CONFIG [ARGUMENT...]: the result file's path without .h5. The program's own rule: the command line before
# [run] output of the configuration or of the file that it starts from, before the configuration's name.
stem_of() {
  local config=$1 file=$1 base argument output='' files=0
  shift
  while [ -r "$file" ] && [ "$files" -lt 100 ]; do  # the program refuses a circle
    output=$(value_in "$file" run output)
    base=$(value_in "$file" "" base)
    if [ -n "$output" ] || [ -z "$base" ]; then break; fi
    case $base in /*) file=$base ;; *) file=$(dirname "$file")/$base ;; esac
    files=$((files + 1))
  done
  for argument in "$@"; do
    case $argument in --run.output=*) output=${argument#*=} ;; esac
  done
  [ -n "$output" ] || output=$(basename "$config" .ini)
  printf '%s\n' "${output%.h5}"
}

# newest_checkpoint STEM: the round of the newest checkpoint, 0 where there is none.
newest_checkpoint() {
  local file round newest=0
  for file in "$1".ckpt.*.h5; do
    round=${file%.h5}
    round=${round##*.}
    case $round in '' | *[!0-9]*) continue ;; esac
    [ "$round" -le "$newest" ] || newest=$round
  done
  printf '%s\n' "$newest"
}

# USR1 (sbatch --signal=B:USR1@120, and preemption where the cluster sends it) comes to this shell alone, which
# passes it on, once: the second one would end the program without a checkpoint. TERM comes to the ranks as well;
# the shell only has to live on.
asked_to_stop=no
launched=
pass_on() { [ "$asked_to_stop" = no ] || [ -z "$launched" ] || kill -USR1 "$launched" 2>/dev/null || true; }
stop_asked() {
  [ "$asked_to_stop" = no ] || return 0
  asked_to_stop=yes
  say "asked to stop; the run ends its round and writes a checkpoint"
  pass_on
}
trap stop_asked USR1
got_term=no
trap 'got_term=yes; say "got SIGTERM"' TERM

# job_name, job_state: this job as SLURM's commands take it, and what they say of it; nothing where there are none.
# The last task of an array bears the array's own number: by that, SLURM would take all tasks.
job_name() { printf '%s\n' "${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"; }
job_state() { squeue -h -j "$(job_name)" -o %T 2>/dev/null; }

# launch RANKS COMMAND...: starts ranks, one to a core, or one to a GPU where the job asked for GPUs, and waits for
# their end; the exit code is theirs, 75 where the signal was faster. The array launch_options goes to srun or mpirun.
launch_options=()
launch() {
  local ranks=$1 start pause=0.05 looks=0
  shift
  if [ "$FEDHPC_LAUNCHER" = srun ]; then
    # Steps do not inherit --cpus-per-task from sbatch since SLURM 22.05.
    start=(srun --mpi=pmix --ntasks="$ranks" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --cpu-bind=cores)
    [ -z "${SLURM_GPUS_PER_TASK:-}${SLURM_GPUS_PER_NODE:-}${SLURM_GPUS:-}" ] ||
      start+=(--gpus-per-task=1 --gpu-bind=single:1)
  else
    start=(mpirun -n "$ranks" --bind-to core)
  fi
  [ "$asked_to_stop" = no ] || return 75
  # In the background: bash runs no trap while it waits for a command in the foreground.
  "${start[@]}" ${launch_options[@]+"${launch_options[@]}"} "$@" &
  launched=$!
  pass_on  # a signal that came before $launched was known
  # No `wait` while the process lives: a signal that comes together with its end makes bash 5.2 leave `wait` with
  # the code thrown away, and say -1 or 255 from then on. In a `sleep` it keeps the code.
  while kill -0 "$launched" 2>/dev/null; do
    sleep "$pause"
    [ $((looks += 1)) -lt 20 ] || pause=0.5
  done
  wait "$launched" || return
  ! taken_back || return 137
}

# taken_back: whether SLURM is ending this job, though srun has said 0: it does so as well where a node has failed. The
# job's state follows a moment later, certainly where SIGTERM has come.
taken_back() {
  local look
  for look in 1 2 3 4 5 6 7 8 9 10; do
    case $(job_state) in
      RUNNING | '') ;;
      *) return 0 ;;
    esac
    [ "$look" -lt 3 ] || [ "$got_term" = yes ] || return 1
    sleep 0.5
  done
  return 1
}

# run_or_resume RANKS CONFIG [ARGUMENT...]: goes on from the newest checkpoint beside the result file, else begins.
# The configuration and the arguments are given again on resuming: the program takes what may change and refuses, with
# the names of the keys, what is not as the run began. Exit code: the program's, 128 + n for a rank killed by signal n.
run_or_resume() {
  local ranks=$1 config=$2 stem round
  shift 2
  stem=$(stem_of "$config" "$@")
  round=$(newest_checkpoint "$stem")
  mkdir -p "$(dirname "$stem")"
  if [ "$round" -gt 0 ]; then
    say "going on with $stem.h5 from its checkpoint of round $round on $ranks ranks"
    launch "$ranks" "$FEDHPC" resume "$stem.h5" "$config" "$@"
  else
    say "beginning $stem.h5 on $ranks ranks"
    launch "$ranks" "$FEDHPC" run "$config" "$@"
  fi
}

# said_in_the_end CODE: what an exit code asks for, in the job's output.
said_in_the_end() {
  case $1 in
    0) say "done" ;;
    75) say "interrupted with a checkpoint (exit code 75); the same sbatch command goes on" ;;
    2) say "refused (exit code 2); the message above says what to change" ;;
    *) say "failed (exit code $1); remove the cause, then the same sbatch command goes on where it can" ;;
  esac
}

# run_to_the_end RANKS CONFIG [ARGUMENT...]: run_or_resume in a job that puts itself back into the queue when the
# run was interrupted (75) or a rank was killed (137: memory, a lost node, a stale step of one; 138: the signal to
# stop came before the program listened). Ends the script with the run's exit code.
run_to_the_end() {
  local stem before code=0 restarts=${SLURM_RESTART_COUNT:-0}
  stem=$(stem_of "${@:2}")
  before=$(newest_checkpoint "$stem")
  run_or_resume "$@" || code=$?
  case $code in
    75) ;;
    138) [ "$asked_to_stop" = yes ] || { said_in_the_end "$code"; exit "$code"; } ;;
    137)
      # Killed again and again without a step forward: it would go on for ever.
      if [ "$restarts" -ge 3 ] && [ "$(newest_checkpoint "$stem")" -le "$before" ]; then
        say "killed (exit code 137) in restart $restarts without a new checkpoint: too little memory? Not requeued"
        exit "$code"
      fi ;;
    *) said_in_the_end "$code"; exit "$code" ;;
  esac
  # A job that somebody cancelled, or that SLURM itself takes back, is no longer RUNNING and is left alone.
  if [ "$(job_state)" != RUNNING ]; then
    say "exit code $code; SLURM is ending the job already, not requeued from here"
  elif [ "$restarts" -ge "${FEDHPC_MAX_RESTARTS:-100}" ]; then
    say "exit code $code after $restarts restarts (FEDHPC_MAX_RESTARTS); not requeued, the same sbatch command goes on"
  else
    say "exit code $code; back into the queue after restart $restarts"
    scontrol requeue "$(job_name)" || said_in_the_end "$code"
  fi
  exit "$code"
}
