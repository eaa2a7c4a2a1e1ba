#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

namespace {

constexpr const char* kUsage =
    "usage: fedhpc run CONFIG.ini [--force|--go-on] [--section.key=value ...]\n"
    "       fedhpc resume RUN.h5|RUN.ckpt.N.h5 [CONFIG.ini] [--section.key=value ...]\n"
    "       fedhpc plan CONFIG.ini [--json|--series] [--ranks N] [--section.key=value ...]\n"
    "       fedhpc list [algorithms|models|datasets|partitioners|factorisations|codecs]\n"
    "                   [--run.plugin=FILE,...]\n"
    "       fedhpc show model MODEL.h5|CONFIG.ini [--section.key=value ...]\n"
    "       fedhpc show config CONFIG.ini [KEY] [--section.key=value ...]\n"
    "       fedhpc show run RUN.h5\n"
    "       fedhpc help COMMAND|NAME|KEY|SECTION|keys [--run.plugin=FILE,...]\n"
    "       fedhpc export RUN.h5 --csv DIR\n"
    "       fedhpc --version\n"
    "On several ranks: mpirun -n 4 fedhpc run CONFIG.ini\n";

constexpr std::array kCommands{"run", "resume", "plan", "list", "show", "help", "export"};

}  // namespace

int version_command() {
  const BuildInfo build = build_info();
  std::printf("fedhpc %s (%s, torch-%s, %s, HDF5-%s, %s, %s)\n", build.version.c_str(),
              build.commit.c_str(), build.torch.c_str(), mpi_version().c_str(),
              h5::library_version().c_str(), build.nccl.c_str(), build.compiler.c_str());
  return 0;
}

namespace {

/// Carries out a command whose work is what it prints.
int print(const std::string& command, const Arguments& rest) {
  if (command == "plan") return plan_command(rest);
  // The small commands speak once, whatever the number of ranks.
  if (launcher().rank != 0) return 0;
  if (command == "list") return list_command(rest);
  if (command == "show") return show_command(rest);
  if (command == "help" && !rest.empty()) return help_command(rest);
  if (command == "export") return export_command(rest);
  if (command == "--version" || command == "-v" || command == "-V") return version_command();
  if (command == "help" || command == "--help" || command == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (command.empty()) throw ConfigError("no command given; 'fedhpc help' shows how to use it");
  std::vector<std::string> commands(kCommands.begin(), kCommands.end());
  commands.emplace_back("--version");
  throw ConfigError(concat("unknown command '", command, "'; allowed: ", join(commands),
                           suggestion(nearest(command, commands))));
}

}  // namespace

int dispatch(const Arguments& arguments, const std::string& command_line) {
  const std::string command = arguments.empty() ? "" : arguments.front();
  const Arguments rest(arguments.empty() ? arguments.end() : arguments.begin() + 1,
                       arguments.end());
  const auto asks_for_help = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  const bool is_command = std::any_of(kCommands.begin(), kCommands.end(),
                                      [&](const char* name) { return command == name; });
  if (is_command && std::any_of(rest.begin(), rest.end(), asks_for_help)) {
    return dispatch({"help", command}, command_line);
  }
  if (command == "run") return run_command(rest, command_line);
  if (command == "resume") return resume_command(rest, command_line);
  const int exit_code = print(command, rest);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw Error(concat("standard output cannot be written: ", std::strerror(errno)));
  }
  return exit_code;
}

}  // namespace fedhpc
