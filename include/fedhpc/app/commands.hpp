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

/// The seconds that ranks wait for each other until all know the configuration: what the command
/// line or the file says of run.collective_timeout, as far as it can be read.
double start_timeout(const Arguments& arguments);

/// Picks the subcommand named first; `command_line` is what was typed.
int dispatch(const Arguments& arguments, const std::string& command_line);

}  // namespace fedhpc
