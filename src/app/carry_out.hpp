#pragma once

#include <memory>
#include <string>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/output.hpp"

namespace fedhpc {

/// Returns the communicator of all ranks for a run of this configuration: between GPUs where it
/// trains on them. Sets this rank's GPU. Collective.
std::unique_ptr<Communicator> run_communicator(const Config& config);

/// Prints a sentence for the user on standard error of rank 0; nothing for an empty one.
void warn(const std::string& message);

/// Tells on rank 0 which of the assignments do not act.
void show_notes(const Config& config, const Communicator& comm);

/// Carries out a run, from its beginning or from a checkpoint, with all that it writes and shows.
/// Returns exit code 0 when complete, 1 when it diverged and was to stop then, 75 when a signal
/// interrupted it. `earlier` decides what becomes of the result file that is there. Collective.
int carry_out(Config& config, Communicator& comm, const std::string& command_line,
              const Resumption* from, Earlier earlier);

}  // namespace fedhpc
