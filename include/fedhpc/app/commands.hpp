#pragma once

#include <string>
#include <vector>

#include "fedhpc/comm/launcher.hpp"
#include "fedhpc/core/configuration_source.hpp"

namespace fedhpc {

using Arguments = std::vector<std::string>;

/// The subcommands. Each gets the arguments after its name and returns the exit code; wrong use
/// throws ConfigError.
int run_command(const Arguments& arguments, const std::string& command_line);
int resume_command(const Arguments& arguments, const std::string& command_line);
int plan_command(const Arguments& arguments);
int list_command(const Arguments& arguments);
int show_command(const Arguments& arguments);
int help_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int version_command();

/// What has to be known before MPI starts and the configuration is read in earnest.
struct StartOptions {
  double timeout = 0;  ///< run.collective_timeout [s]: how long ranks wait for each other till then
  UseMpi mpi = UseMpi::Auto;  ///< run.mpi
};

/// What the command line or the file says of these keys, as far as it can be read. `arguments`:
/// those of run, resume or plan; other commands never start MPI.
StartOptions start_options(const std::string& command, const Arguments& arguments);

/// The same of what has been read already.
StartOptions start_options(const std::vector<Assignment>& assignments);

/// The whole program, from its arguments to its exit code.
int program(int argc, char** argv);

/// Runs the subcommand named first; `command_line` is the line as typed.
int dispatch(const Arguments& arguments, const std::string& command_line);

}  // namespace fedhpc
