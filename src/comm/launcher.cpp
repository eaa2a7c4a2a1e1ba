#include "fedhpc/comm/launcher.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace fedhpc {

namespace {

constexpr const char* kOwnLauncher =
    "take the mpirun of this MPI, or build with the MPI of this launcher";
constexpr const char* kSrunsOwn =
    "take srun --mpi=pmix (srun --mpi=list names what there is), or an MPI that matches srun";

/// A launcher, by the variables in which it numbers its tasks.
struct Kind {
  const char* name;
  const char* rank;
  std::array<const char*, 2> tasks;  // the first one there is counts
  const char* needs;                 // another one of its variables
  const char* advice;
  bool gives_terminals = false;
};

// Those first that run inside another's tasks: mpirun's and mpiexec's servers are started by srun,
// and a Flux of one's own by any of them. A batch script of SLURM has SLURM_PROCID and SLURM_NTASKS,
// but no step.
constexpr Kind kKinds[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, nullptr, kOwnLauncher, true},
    {"mpirun_rsh", "MV2_COMM_WORLD_RANK", {"MV2_COMM_WORLD_SIZE"}, nullptr, kOwnLauncher},
    {"PALS", "PALS_RANKID", {"PMI_SIZE", "PALS_LOCAL_SIZE"}, nullptr, kOwnLauncher},
    {"flux run",
     "FLUX_TASK_RANK",
     {"FLUX_JOB_SIZE"},
     nullptr,
     "build with an MPI that finds Flux by PMI, or take flux run -o pmi=pmix"},
    {"jsrun", "JSM_NAMESPACE_RANK", {"JSM_NAMESPACE_SIZE"}, nullptr, kOwnLauncher},
    {"mpiexec", "PMI_RANK", {"PMI_SIZE"}, nullptr, kOwnLauncher},
    {"srun", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS"}, "SLURM_STEP_ID", kSrunsOwn},
    {"PMIx", "PMIX_RANK", {}, nullptr, kOwnLauncher, true},  // PRRTE, mpirun of Open MPI 5, alone
};

int number(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

bool given(const char* name) { return name == nullptr || std::getenv(name) != nullptr; }

}  // namespace

Launcher find_launcher() {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [](const Kind& one) {
    return given(one.rank) && given(one.needs);
  });
  if (kind == std::end(kKinds)) return {};
  Launcher found{.name = kind->name,
                 .advice = kind->advice,
                 .rank = number(kind->rank),
                 .gives_terminals = kind->gives_terminals};
  for (const char* tasks : kind->tasks) {
    if (found.tasks == 0) found.tasks = number(tasks);
  }
  // PALS counts the tasks of a host: one there says nothing of the others.
  if (found.name == "PALS" && found.tasks == 1 && !given("PMI_SIZE")) found.tasks = 0;
  // srun --mpi=pmi2 numbers ranks as mpiexec does.
  if (found.name == "mpiexec" && given("SLURM_STEP_ID") &&
      found.tasks == number("SLURM_STEP_NUM_TASKS")) {
    found.name = "srun";
    found.advice = kSrunsOwn;
  }
  found.offers_ranks = given("OMPI_COMM_WORLD_RANK") || given("PMIX_RANK") || given("PMI_RANK");
  return found;
}

const Launcher& launcher() {
  static const Launcher found = find_launcher();
  return found;
}

}  // namespace fedhpc
