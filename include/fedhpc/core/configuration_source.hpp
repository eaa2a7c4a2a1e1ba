#pragma once

#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

/// One `key = value` as a person wrote it, and its place.
struct Assignment {
  std::string key;
  std::string value;
  Origin origin;
};

/// Reads an INI file (sections, `key = value`, `key = "value"`, `#` comments) with
/// Boost.Program_options, and before its own keys those of the file that a line `base = OTHER.ini`
/// ahead of the first section names, from the folder of the file that says it. A base may have one
/// too; each has a level below that of the file that starts from it. Throws ConfigError naming file
/// and line for a file that cannot be read, a circle or a second base, a malformed line, a key
/// outside any section or given twice in a file.
std::vector<Assignment> read_ini(const std::string& path);

/// The same for INI text in memory, which has no base; `name` stands for the path in messages.
std::vector<Assignment> parse_ini(const std::string& text, const std::string& name);

/// Returns a value as it stands in an INI file: as it is where it reads back the same, else between
/// double quotes. There a backslash before a quote, a backslash, n or r gives a character that
/// could not stand there.
std::string ini_value(const std::string& value);

/// Splits `--section.key=value` arguments, in their order. Throws ConfigError for anything else.
std::vector<Assignment> parse_command_line(const std::vector<std::string>& arguments);

/// Returns the value the highest level gives `key`, or `fallback`.
std::string lookup(const std::vector<Assignment>& assignments, const std::string& key,
                   const std::string& fallback);

}  // namespace fedhpc
