#pragma once

#include <string>

namespace fedhpc {

/// run.mpi. Auto: where a launcher has started this process. Off: one process alone, whatever
/// started it.
enum class UseMpi { Auto, On, Off };

/// What has started this process, as its environment tells before MPI runs.
struct Launcher {
  std::string name;           ///< "srun"; empty: none that is known
  std::string advice;         ///< how it starts ranks of one MPI program
  int rank = 0;               ///< of this process
  int tasks = 0;              ///< 0: not told
  bool offers_ranks = false;  ///< a library of MPI is told where it finds the others
  /// Puts a terminal of its own between a task and wherever its output goes, unasked. The others
  /// have pipes, or a terminal that was asked for (srun --pty, flux run -o pty).
  bool gives_terminals = false;

  bool wants_mpi() const { return !name.empty() && (offers_ranks || tasks != 1 || rank > 0); }
};

/// The launcher nearest to this process, where one was started by another. A batch script of SLURM
/// is no launch: its tasks are what srun starts.
Launcher find_launcher();

/// The same, as it was when it was first asked for: MPI, once started, sets variables of its own.
const Launcher& launcher();

}  // namespace fedhpc
