#pragma once

#include <memory>
#include <string>

#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/build_info.hpp"
#include "fedhpc/engine/config.hpp"

namespace fedhpc {

/// Reads `CONFIG.ini [--section.key=value ...]`; `command` names the subcommand in messages.
Given given_by(const Arguments& arguments, const std::string& command);

/// Loads the plug-ins of `--run.plugin=FILE,...` and returns the other arguments of `command`,
/// which has no configuration. Throws ConfigError for any other key.
Arguments load_plugins(const Arguments& arguments, const std::string& command);

/// Checks it, and that the files it names are there.
std::unique_ptr<Config> configuration_of(const Given& given);

/// Throws ConfigError, on every rank, where hosts have different versions of the program or of
/// LibTorch. Collective.
void require_one_build(const BuildInfo& own, Communicator& comm);

/// Throws ConfigError, on every rank, where a script has given ranks different configurations. Places
/// of files to be read may differ. Collective.
void require_one_configuration(const Config& config, Communicator& comm);

/// Gives a rank one thread while it lives, unless OMP_NUM_THREADS says otherwise: ranks are the
/// parallel units.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace fedhpc
