#pragma once

#include <memory>
#include <string>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/config.hpp"

namespace fedhpc {

/// Reads `CONFIG.ini [--section.key=value ...]`; `command` names the subcommand in messages.
std::unique_ptr<Config> read_configuration(const Arguments& arguments, const std::string& command);

/// Loads the plug-ins of `--run.plugin=FILE,...` and returns the other arguments of `command`,
/// which has no configuration. Throws ConfigError for any other key.
Arguments load_plugins(const Arguments& arguments, const std::string& command);

/// Gives a rank one thread, unless OMP_NUM_THREADS says otherwise: ranks are the parallel units.
void pin_threads();

}  // namespace fedhpc
