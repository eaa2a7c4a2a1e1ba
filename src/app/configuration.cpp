#include "app/configuration.hpp"

#include <cstdlib>

#include <ATen/Parallel.h>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::unique_ptr<Config> read_configuration(const Arguments& arguments, const std::string& command) {
  if (arguments.empty() || arguments.front().starts_with("--")) {
    throw ConfigError(concat("fedhpc ", command, " needs a configuration first: fedhpc ", command,
                             " CONFIG.ini [--section.key=value ...]"));
  }
  const std::string& path = arguments.front();
  std::vector<Assignment> assignments = read_ini(path);
  for (Assignment& assignment : parse_command_line({arguments.begin() + 1, arguments.end()})) {
    assignments.push_back(std::move(assignment));
  }
  auto config = std::make_unique<Config>(assignments, path);
  config->check_files();
  return config;
}

void pin_threads() {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(1);
}

}  // namespace fedhpc
