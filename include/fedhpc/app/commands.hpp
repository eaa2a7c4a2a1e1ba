#pragma once

#include <string>
#include <vector>

namespace fedhpc {

using Arguments = std::vector<std::string>;

/// The subcommands. Each gets the arguments after its name and returns the exit code; wrong use
/// throws ConfigError.
int run_command(const Arguments& arguments, const std::string& command_line);
int resume_command(const Arguments& arguments, const std::string& command_line);
int plan_command(const Arguments& arguments);
int list_command(const Arguments& arguments);
int help_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int version_command();

/// Returns the seconds that ranks wait for each other until all know the configuration. That is
/// run.collective_timeout of the command line or the file, as far as it can be read.
double start_timeout(const Arguments& arguments);

/// Runs the subcommand named first; `command_line` is the line as typed.
int dispatch(const Arguments& arguments, const std::string& command_line);

}  // namespace fedhpc
