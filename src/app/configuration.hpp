#pragma once

#include <memory>
#include <string>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/config.hpp"

namespace fedhpc {

/// The seconds that ranks wait for each other until all know the configuration: what the command
/// line or the file says of run.collective_timeout, as far as it can be read.
double start_timeout(const Arguments& arguments);

/// Reads `CONFIG.ini [--section.key=value ...]`; `command` names the subcommand in messages.
std::unique_ptr<Config> read_configuration(const Arguments& arguments, const std::string& command);

/// One thread a rank, unless OMP_NUM_THREADS says otherwise: ranks are the unit of parallelism.
void pin_threads();

}  // namespace fedhpc
