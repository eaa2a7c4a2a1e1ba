#include "fedhpc/comm/launcher.hpp"

#include <cstdlib>
#include <map>
#include <optional>

#include <gtest/gtest.h>
#include <mpi.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

using Variables = std::map<std::string, std::string>;

/// An environment in which these variables alone tell of a launcher.
class OnlyThese {
 public:
  explicit OnlyThese(const Variables& variables) {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK",
          "MV2_COMM_WORLD_SIZE", "PALS_RANKID", "PALS_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
          "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
          "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "PMIX_RANK"}) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      const auto given = variables.find(name);
      set(name, given == variables.end() ? std::nullopt : std::optional(given->second));
    }
  }
  ~OnlyThese() {
    for (const auto& [name, value] : before_) set(name, value);
  }
  OnlyThese(const OnlyThese&) = delete;
  OnlyThese& operator=(const OnlyThese&) = delete;

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> before_;
};

Launcher in(const Variables& variables) {
  const OnlyThese environment(variables);
  return find_launcher();
}

TEST(Launcher, IsTheNearestOne) {
  // mpirun in a job of SLURM: its servers were started by srun, one on each of two nodes.
  const Launcher mpirun = in({{"OMPI_COMM_WORLD_RANK", "5"},
                              {"OMPI_COMM_WORLD_SIZE", "8"},
                              {"PMIX_RANK", "5"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(mpirun.name, "mpirun");
  EXPECT_EQ(mpirun.rank, 5);
  EXPECT_EQ(mpirun.tasks, 8);
  // The same by MPICH's mpiexec, and srun --mpi=pmi2.
  Variables pmi{{"PMI_RANK", "5"},
                {"PMI_SIZE", "8"},
                {"SLURM_PROCID", "1"},
                {"SLURM_STEP_ID", "0"},
                {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_EQ(in(pmi).name, "mpiexec");
  EXPECT_EQ(in(pmi).tasks, 8);
  pmi["SLURM_STEP_NUM_TASKS"] = "8";
  EXPECT_EQ(in(pmi).name, "srun");
  const Launcher srun = in({{"PMIX_RANK", "2"},
                            {"SLURM_PROCID", "2"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_EQ(srun.name, "srun");
  EXPECT_EQ(srun.tasks, 4);
  EXPECT_TRUE(srun.offers_ranks);
}

TEST(Launcher, StartsMpiUnlessThereIsOneTaskAlone) {
  EXPECT_FALSE(in({}).wants_mpi());
  EXPECT_FALSE(in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).wants_mpi()) << "a batch script";
  Variables step{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_FALSE(in(step).wants_mpi());
  step["PMIX_RANK"] = "0";
  EXPECT_TRUE(in(step).wants_mpi());
  EXPECT_TRUE(in({{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}).wants_mpi());
  EXPECT_TRUE(in({{"PALS_RANKID", "0"}}).wants_mpi()) << "nobody says how many";
  EXPECT_EQ(in({{"PALS_RANKID", "1"}, {"PMI_SIZE", "6"}, {"PALS_LOCAL_SIZE", "3"}}).tasks, 6);
}

TEST(Launcher, GivesATerminalUnaskedOrNot) {
  EXPECT_FALSE(in({}).gives_terminals);
  EXPECT_TRUE(in({{"OMPI_COMM_WORLD_RANK", "0"}}).gives_terminals);
  EXPECT_TRUE(in({{"PMIX_RANK", "0"}}).gives_terminals) << "PRRTE";
  const Variables pty{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"PMIX_RANK", "0"}};
  EXPECT_FALSE(in(pty).gives_terminals) << "srun --pty is one that was asked for";
  EXPECT_FALSE(in({{"PMI_RANK", "0"}}).gives_terminals) << "pipes";
  EXPECT_FALSE(in({{"FLUX_TASK_RANK", "0"}}).gives_terminals);
}

TEST(Threads, AreRefusedToAnMpiWithoutThem) {
  for (const int enough : {MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE}) {
    EXPECT_NO_THROW(require_threads(enough)) << enough;
  }
  try {
    require_threads(MPI_THREAD_SINGLE);
    FAIL() << "MPI_THREAD_SINGLE is not enough";
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    EXPECT_TRUE(said.starts_with(concat("MPI (", mpi_version(), ") was built without threads: ")))
        << said;
    EXPECT_NE(said.find("--run.mpi=off"), std::string::npos) << said;
  }
}

TEST(MpiWord, NamesLibrariesByWhatTheySay) {
  EXPECT_EQ(mpi_word("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo"),
            "OpenMPI-4.1.4");
  EXPECT_EQ(mpi_word("Open MPI v5.0.0rc12, package: x"), "OpenMPI-5.0.0rc12");
  EXPECT_EQ(mpi_word("MPICH Version:      4.2.0\nMPICH Release date: Fri Feb  9"), "MPICH-4.2.0");
  EXPECT_EQ(mpi_word("Intel(R) MPI Library 2021.9 for Linux* OS\n"), "Intel-MPI-2021.9");
  EXPECT_EQ(mpi_word("MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)\n"),
            "CRAY-MPICH-8.1.25.17");
  EXPECT_EQ(mpi_word("MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date :"), "MVAPICH2-2.3.7");
  EXPECT_EQ(mpi_word(""), "MPI");
}

}  // namespace
}  // namespace fedhpc
