# Sourced by jobs/environment.sh: what it needs to know of SLURM.
# shellcheck shell=bash disable=SC2034,SC2154  # variables that both have

# A job that was submitted from inside a step bears that step's variables: the program would take them for its own.
unset SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NUM_TASKS

job=${SLURM_JOB_NAME:-job}
how_to_submit='sbatch jobs/NAME.sbatch CONFIG.ini [--section.key=value ...]'
restarts=${SLURM_RESTART_COUNT:-0}

# own_launcher: srun where it can start MPI programs.
own_launcher() {
  if [ -n "${FEDHPC_MPI:-$(mpi_of_srun)}" ]; then echo srun; else echo mpirun; fi
}

# mpi_of_srun: what srun --mpi= is to be given here; nothing where it has none that is known to work.
mpi_of_srun() {
  case $(srun --mpi=list 2>&1) in
    *pmix*) echo pmix ;;
    *cray_shasta*) echo cray_shasta ;;
  esac
}

start() {
  local ranks=$1 gpus=()
  if [ "$FEDHPC_LAUNCHER" != srun ]; then
    by_mpi "$@"
    return
  fi
  shift
  [ -z "${SLURM_GPUS_PER_TASK:-}${SLURM_GPUS_PER_NODE:-}${SLURM_GPUS:-}" ] ||
    gpus=(--gpus-per-task=1 --gpu-bind=single:1)
  # Steps do not inherit --cpus-per-task from sbatch since SLURM 22.05.
  srun --mpi="${FEDHPC_MPI:-$(mpi_of_srun)}" --ntasks="$ranks" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    --cpu-bind=cores ${gpus[@]+"${gpus[@]}"} ${launch_options[@]+"${launch_options[@]}"} "$@" &
  launched=$!
}

pass_on() { signal_launched; }

# job_name, job_state: this job as SLURM's commands take it, and what they say of it; nothing where there are none.
# The last task of an array bears the array's own number: by that, SLURM would take all tasks.
job_name() { printf '%s\n' "${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-}}${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"; }
job_state() { squeue -h -j "$(job_name)" -o %T 2>/dev/null; }

put_back() { scontrol requeue "$(job_name)"; }
