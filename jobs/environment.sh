# Sourced by the job scripts: where the program is, MPI's settings, how ranks are started, and a run that is
# taken up where it was. What a cluster may need to change, all by variables of the environment:
#
#   FEDHPC               the program [$FEDHPC_HOME/build/release/fedhpc, that of build/cpu, that of the same
#                        installation, else fedhpc on the PATH]
#   FEDHPC_HOME          the project's folder, or PREFIX/share/fedhpc [the folder the job was submitted in]
#   FEDHPC_MODULES       modules to load, such as "gcc openmpi" [none]
#   FEDHPC_LAUNCHER      srun, flux, mpirun, or mpiexec of another MPI [the scheduler's own where it can start MPI
#                        programs, else mpirun]
#   FEDHPC_MPI           what srun --mpi= is given: pmix, pmi2, cray_shasta, none [pmix or cray_shasta, as srun has it];
#                        what flux -o pmi= is given [as Flux has it]
#   FEDHPC_WARNING       seconds before the job's end at which a run is asked to stop, under PBS and Flux [120]; the
#                        job's time has to be longer
#   FEDHPC_MAX_RESTARTS  how often a job may requeue itself [100]
#   FEDHPC_DATA          folder of the data sets, as for every run
#
# What schedulers differ in lies beside it, in slurm.sh, pbs.sh and flux.sh; a job script names its own in FEDHPC_SCHEDULER.
# Nothing is fetched and no daemon is started. Exit codes of the program: docs/how-to/run.md.

# Each gives: job (its name in messages), how_to_submit, restarts (so far), own_launcher, start RANKS COMMAND... (in the
# background, as $launched), pass_on (of USR1), job_state and put_back; ranks_of_job and seconds_left where scripts have
# to ask for the number of ranks, and no signal announces the end: of the job's time what is left and, where that may be
# less, all of it; none where it has no limit.
# shellcheck source=jobs/slurm.sh
. "$FEDHPC_HOME/jobs/${FEDHPC_SCHEDULER:-slurm}.sh"
# shellcheck source=jobs/await_end.sh
. "$FEDHPC_HOME/jobs/await_end.sh"

if [ $# -eq 0 ]; then  # the job script's own arguments
  echo "$job: nothing to run; $how_to_submit" >&2
  exit 2
fi

if [ -n "${FEDHPC_MODULES:-}" ]; then
  read -r -a modules <<<"$FEDHPC_MODULES"
  if ! module load "${modules[@]}"; then
    echo "$job: cannot load the modules '$FEDHPC_MODULES' (FEDHPC_MODULES); nothing is run without them" >&2
    exit 2
  fi
fi

if [ -z "${FEDHPC:-}" ]; then
  places="$FEDHPC_HOME/build/release, $FEDHPC_HOME/build/cpu, $FEDHPC_HOME/../../bin and on the PATH"
  for FEDHPC in "$FEDHPC_HOME"/build/{release,cpu}/fedhpc "$FEDHPC_HOME/../../bin/fedhpc" "$(command -v fedhpc || true)"; do
    [ ! -x "$FEDHPC" ] || break
  done
fi
if [ ! -x "$FEDHPC" ]; then
  echo "$job: no program '${FEDHPC:-fedhpc}'${places:+ in $places}; build it (tools/build.sh) or set FEDHPC to it" >&2
  exit 2
fi

: "${FEDHPC_MAX_RESTARTS:=100}" "${FEDHPC_WARNING:=120}"
for number in FEDHPC_MAX_RESTARTS FEDHPC_WARNING; do
  case ${!number} in *[!0-9]*)
    echo "$job: $number is '${!number}'; it must be a whole number, as 100" >&2
    exit 2 ;;
  esac
done

# A rank is one thread: what is parallel are the ranks.
export OMP_NUM_THREADS=1

# A cut link. MPI itself never reports one: the program gives up when no rank has got on for
# run.collective_timeout seconds (600 unless given) and ends with 1, which does not requeue. SLURM knows a lost node
# after its SlurmdTimeout (300 s by default) and requeues the job by itself: keep the former the longer one. mpirun
# would notice after 300 + 9 x 20 s of silence on its own connections; this makes it 30 + 3 x 10 s. Open MPI 5's mpirun is
# PRRTE's, which reads its own variables.
export OMPI_MCA_oob_tcp_keepalive_time=${OMPI_MCA_oob_tcp_keepalive_time:-30}
export OMPI_MCA_oob_tcp_keepalive_intvl=${OMPI_MCA_oob_tcp_keepalive_intvl:-10}
export OMPI_MCA_oob_tcp_keepalive_probes=${OMPI_MCA_oob_tcp_keepalive_probes:-3}
export PRTE_MCA_oob_tcp_keepalive_time=${PRTE_MCA_oob_tcp_keepalive_time:-$OMPI_MCA_oob_tcp_keepalive_time}
export PRTE_MCA_oob_tcp_keepalive_intvl=${PRTE_MCA_oob_tcp_keepalive_intvl:-$OMPI_MCA_oob_tcp_keepalive_intvl}
export PRTE_MCA_oob_tcp_keepalive_probes=${PRTE_MCA_oob_tcp_keepalive_probes:-$OMPI_MCA_oob_tcp_keepalive_probes}

FEDHPC_LAUNCHER=${FEDHPC_LAUNCHER:-$(own_launcher)}

say() { printf '%s %s: %s\n' "$(date '+%F %T')" "$job" "$1"; }

# alone ARGUMENT...: the program as one process. Numbers of ranks that this shell has inherited are not those of a command
# that it calls itself.
alone() { env -u PMI_RANK -u PMIX_RANK -u OMPI_COMM_WORLD_RANK "$FEDHPC" "$@"; }

# results_of CONFIG [ARGUMENT...]: the result file's path. Exit code: the program's, 2 of a configuration it refuses.
results_of() { alone show config "$1" run.output "${@:2}"; }

# beside RESULTS: what the names of a run's checkpoints and of its lock begin with. They lie beside what a link leads to.
beside() {
  local results=$1
  [ ! -L "$results" ] || results=$(readlink -m -- "$results")
  printf '%s\n' "${results%.h5}"
}

# stem_of CONFIG [ARGUMENT...]: the same, of the configuration's result file.
stem_of() {
  local results
  results=$(results_of "$@") || return
  beside "$results"
}

# newest_checkpoint STEM: the round of the newest checkpoint, -1 where there is none: one of round 0 comes of a run that
# was interrupted inside its first round.
newest_checkpoint() {
  local file round newest=-1
  for file in "$1".ckpt.*.h5; do
    round=${file%.h5}
    round=${round##*.}
    case $round in '' | *[!0-9]*) continue ;; esac
    [ "$round" -le "$newest" ] || newest=$round
  done
  printf '%s\n' "$newest"
}

# USR1 (sbatch --signal=B:USR1@120, stop_in_time, and preemption where the cluster sends it) comes to this shell alone,
# which passes it on, once: the second one would end the program without a checkpoint. TERM comes to the ranks as well;
# the shell only has to live on.
asked_to_stop=no
passed_on=no
launched=
pass_on_once() {
  [ "$passed_on" = no ] || return 0  # the signal came as $launched was set: both callers have seen it
  passed_on=yes
  pass_on
}
stop_asked() {
  [ "$asked_to_stop" = no ] || return 0
  asked_to_stop=yes
  say "asked to stop; the run ends its round and writes a checkpoint"
  [ -z "$launched" ] || pass_on_once
}
trap stop_asked USR1
got_term=no
trap 'got_term=yes; say "got SIGTERM"' TERM

# told COMMAND...: what it prints, asked a few times where the scheduler does not answer; nothing where it never does.
told() {
  local look answer=
  for look in 1 2 3 4 5; do
    answer=$("$@")
    [ -z "$answer" ] || break
    [ "$look" = 5 ] || sleep 1
  done
  printf '%s\n' "$answer"
}

# stop_in_time: sends USR1 to this script FEDHPC_WARNING seconds before the job's end, for schedulers that do not do so
# themselves. A job that is shorter would be asked to stop before it has begun, and put itself back for nothing.
stop_in_time() {
  local left limit warning=$((10#$FEDHPC_WARNING))
  read -r left limit <<<"$(told seconds_left)"
  case $left in
    none) return ;;
    '' | *[!0-9]*)
      echo "$job: the scheduler does not tell the time that is left; nothing is asked to stop before the job's end" >&2
      return ;;
  esac
  if [ "${limit:=$left}" -le "$warning" ]; then
    echo "$job: the job's time ($limit s) is not above FEDHPC_WARNING ($warning s); nothing is run" >&2
    exit 2
  fi
  {
    sleep $((left > warning ? left - warning : 0)) &
    sleeper=$!
    trap 'kill "$sleeper"' TERM
    wait "$sleeper" && kill -USR1 $$
  } >/dev/null 2>&1 </dev/null &
  local timer=$!
  # shellcheck disable=SC2064  # the timer's number of now
  trap "kill $timer 2>/dev/null" EXIT
}

! declare -F seconds_left >/dev/null || stop_in_time

# by_mpi RANKS COMMAND...: starts ranks in the background by an MPI's own launcher, one to a core. The array hosts has
# options that say where.
hosts=()
by_mpi() {
  local ranks=$1 binding=(--bind-to core)
  shift
  [ "$FEDHPC_LAUNCHER" = mpirun ] || binding=()  # Open MPI's
  "$FEDHPC_LAUNCHER" -n "$ranks" ${hosts[@]+"${hosts[@]}"} ${binding[@]+"${binding[@]}"} \
    ${launch_options[@]+"${launch_options[@]}"} "$@" &
  launched=$!
}
signal_launched() { kill -USR1 "$launched" 2>/dev/null || true; }

# launch RANKS COMMAND...: starts ranks, one to a core, or one to a GPU where the job asked for GPUs, and waits for
# their end; the exit code is theirs, 75 where the signal was faster. The array launch_options goes to the launcher.
launch_options=()
launch() {
  local code=0
  launched=
  [ "$asked_to_stop" = no ] || return 75
  # In the background: bash runs no trap while it waits for a command in the foreground.
  start "$@"
  [ "$asked_to_stop" = no ] || pass_on_once  # a signal that came before $launched was known
  await_end "$launched" || code=$?
  # MPICH's mpiexec gives the number of the signal itself.
  case $code in 9 | 10 | 15) code=$((128 + code)) ;; esac
  [ "$code" = 0 ] || return "$code"
  ! taken_back || return 137
}

# taken_back: whether the scheduler is ending this job, though its launcher has said 0: srun does so as well where a node
# has failed. The job's state follows a moment later, certainly where SIGTERM has come.
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

# run_once RANKS CONFIG [ARGUMENT...]: run_or_resume; ends the script with the run's exit code.
run_once() {
  local code=0
  run_or_resume "$@" || code=$?
  leave "$code"
}

# run_or_resume RANKS CONFIG [ARGUMENT...]: goes on from the newest checkpoint beside the result file, else begins, and
# leaves a complete result as it is. The program takes what may change and refuses, with the names of the keys, what is
# not as the run began. Exit code: the program's, 128 + n for a rank killed by signal n.
run_or_resume() {
  local ranks=$1 config=$2 results stem round on="on $1 ranks"
  shift 2
  results=$(results_of "$config" "$@") || return
  stem=$(beside "$results")
  round=$(newest_checkpoint "$stem")
  mkdir -p "$(dirname "$stem")"
  [ "$ranks" != 1 ] || on="on 1 rank"
  if [ "$round" -ge 0 ]; then
    say "going on with $results from its checkpoint of round $round $on"
  else
    say "beginning $results $on"
  fi
  launch "$ranks" "$FEDHPC" run "$config" --go-on "$@" || return
  ended "$results"
}

# status_of RESULTS: how a run has ended, as its result file says; nothing where the program does not answer.
status_of() { alone show run "$1" | sed -n 's/^status //p'; }

# ended RESULTS: whether a run whose launcher has said 0 is over, as its result file says. MPICH's mpiexec says 0 now and
# then though a rank was killed. Where the program does not answer, as an older one, the launcher is believed.
ended() {
  local status=missing
  [ ! -e "$1" ] || status=$(status_of "$1")
  case $status in
    complete | diverged) ;;
    '') say "$FEDHPC does not say how $1 has ended; the launcher's code 0 counts" ;;
    *) say "the launcher says 0, but $1 is $status; taken as a killed rank"; return 137 ;;
  esac
}

# said_in_the_end CODE: what an exit code asks for, in the job's output. Ranks that the scheduler ends have not failed.
said_in_the_end() {
  case $1 in
    0) say "done" ;;
    75)
      if [ -n "${launched:-}" ]; then
        say "interrupted with a checkpoint (exit code 75); the same command goes on"
      else
        say "asked to stop before the run was started (exit code 75); the same command starts it"
      fi ;;
    2) say "refused (exit code 2); the message above says what to change" ;;
    *)
      if taken_back; then
        say "exit code $1; the job is being ended already, not requeued from here"
        return
      fi
      say "failed (exit code $1); remove the cause, then the same command goes on where it can" ;;
  esac
}

# leave CODE: ends the script with it.
leave() {
  said_in_the_end "$1"
  exit "$1"
}

# kills_in_a_row STEM ROUND: counts one kill more since the newest checkpoint, of that ROUND, in STEM.kills, and prints how
# many there are. Those of an earlier job do not count: its memory may have been another.
kills_in_a_row() {
  local kills=0 round=
  [ "$restarts" -eq 0 ] || [ ! -r "$1.kills" ] || read -r kills round <"$1.kills"
  case $kills in '' | *[!0-9]*) kills=0 ;; esac
  [ "$round" = "$2" ] || kills=0
  # Where it cannot be written, FEDHPC_MAX_RESTARTS is the end.
  printf '%s %s\n' $((kills + 1)) "$2" 2>/dev/null >"$1.kills" || true
  printf '%s\n' $((kills + 1))
}

MOST_KILLS=3  # in a row that requeue

# run_to_the_end RANKS CONFIG [ARGUMENT...]: run_or_resume in a job that puts itself back into the queue when the
# run was interrupted (75) or a rank was killed (137: memory, a lost node, a stale step of one; 138: the signal to
# stop came before the program listened). Ends the script with the run's exit code.
run_to_the_end() {
  local stem before newest state stuck=no kills=0 code=0
  stem=$(stem_of "${@:2}") || leave $?
  before=$(newest_checkpoint "$stem")
  run_or_resume "$@" || code=$?
  newest=$(newest_checkpoint "$stem")
  if [ "$code" = 137 ] && [ "$newest" -le "$before" ]; then stuck=yes; else rm -f "$stem.kills"; fi
  case $code in
    75 | 137) ;;
    138) [ "$asked_to_stop" = yes ] || leave "$code" ;;
    *) leave "$code" ;;
  esac
  # A job that somebody cancelled, or that the scheduler itself takes back, is no longer RUNNING and is left alone.
  state=$(told job_state)
  [ -n "$state" ] || say "the scheduler does not tell the job's state; taken as RUNNING"
  if [ "${state:-RUNNING}" != RUNNING ]; then
    say "exit code $code; the job is being ended already, not requeued from here"
    exit "$code"
  fi
  [ "$stuck" = no ] || kills=$(kills_in_a_row "$stem" "$newest")
  if [ "$kills" -gt "$MOST_KILLS" ]; then  # it would go on for ever
    rm -f "$stem.kills"
    say "killed (exit code 137) $kills times in a row without a new checkpoint: too little memory? Not requeued"
  elif [ "$restarts" -ge "$FEDHPC_MAX_RESTARTS" ]; then
    say "exit code $code after $restarts restarts (FEDHPC_MAX_RESTARTS); not requeued, the same command goes on"
  else
    say "exit code $code; back into the queue after restart $restarts"
    put_back || said_in_the_end "$code"
  fi
  exit "$code"
}
