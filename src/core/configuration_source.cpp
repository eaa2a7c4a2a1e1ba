#include "fedhpc/core/configuration_source.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include <boost/program_options.hpp>

#include "fedhpc/core/error.hpp"

#include "core/plain_path.hpp"

namespace fedhpc {

namespace po = boost::program_options;

namespace {

std::string without_outer_spaces(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string without_comment(const std::string& line) {
  return without_outer_spaces(line.substr(0, line.find('#')));
}

/// Whether a ; begins the text or follows a space, as in a comment of other programs.
bool begins_comment(const std::string& text) {
  const std::string spaced = " " + text;
  return spaced.find(" ;") != std::string::npos || spaced.find("\t;") != std::string::npos;
}

/// A line of an INI file whose value stands between double quotes.
struct QuotedLine {
  std::string line;  // with a word in the place of the quotes
  std::string value;
};

/// Nothing where the value has no quotes. Throws ConfigError where they do not close, or something
/// but a comment follows them.
std::optional<QuotedLine> quoted_line(const std::string& line, const std::string& place) {
  const std::size_t equals = line.find_first_of("=#");
  if (equals == std::string::npos || line[equals] == '#') return std::nullopt;
  const std::size_t begin = line.find_first_not_of(" \t", equals + 1);
  if (begin == std::string::npos || line[begin] != '"') return std::nullopt;
  QuotedLine quoted{.line = line.substr(0, begin) + "quoted", .value = {}};
  std::size_t at = begin + 1;
  for (; at < line.size() && line[at] != '"'; ++at) {
    char letter = line[at];
    if (letter == '\\' && ++at < line.size()) {
      letter = line[at] == 'n' ? '\n' : line[at] == 'r' ? '\r' : line[at];
    }
    quoted.value += letter;
  }
  if (at >= line.size() || !without_comment(line.substr(at + 1)).empty()) {
    throw ConfigError(concat(place, ": '", without_outer_spaces(line),
                             "' is not of the form key = \"value\"; inside the quotes, \\\" stands "
                             "for a quote and \\\\ for a backslash"));
  }
  return quoted;
}

/// The line `base = FILE` before the first section of an INI file.
struct BaseLine {
  std::string value;
  std::string place;
};

struct IniText {
  std::vector<Assignment> assignments;
  std::optional<BaseLine> base;
};

/// A line `key = value` as Boost reads it under the line `[section]`, which may be empty.
po::option option_of(const std::string& section, const std::string& content,
                     const std::string& place) {
  std::istringstream one(section + "\n" + content + "\n");
  try {
    const po::parsed_options parsed =
        po::parse_config_file(one, po::options_description(), /*allow_unregistered=*/true);
    require(parsed.options.size() == 1, "one line of an INI file is one option");
    if (!parsed.options.front().string_key.ends_with('.')) return parsed.options.front();
  } catch (const po::error&) {
    // Its message knows no line.
  }
  throw ConfigError(concat(place, ": '", content, "' is not of the form key = value"));
}

void refuse_second_base(const std::optional<BaseLine>& first, const std::string& value,
                        const std::string& place) {
  if (!first) return;
  throw ConfigError(concat(place, ": base '", value, "' is a second one: ", first->place,
                           " has base '", first->value,
                           "'; keep one of them, and let that start from the other"));
}

bool is_base(const std::string& content) {
  return without_outer_spaces(content.substr(0, content.find('='))) == "base" &&
         content.find('=') != std::string::npos;
}

/// INI text line by line: Boost parses a file as a whole and does not tell where it stumbled. Fed
/// with a line under its section, it keeps its syntax and we know the line.
IniText parse_lines(const std::string& text, const std::string& name) {
  IniText parsed;
  std::map<std::string, std::string> seen;
  std::istringstream stream(text);
  std::string section;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string place = concat(name, ":", number);
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // some editors' mark
    if (without_outer_spaces(line).find('\r') != std::string::npos) {
      throw ConfigError(
          concat(place, ": a line goes on behind a carriage return; end lines with a newline"));
    }
    const std::optional<QuotedLine> quoted = quoted_line(line, place);
    const std::string content = without_comment(quoted ? quoted->line : line);
    if (content.empty()) continue;
    if (!quoted && begins_comment(content)) {
      throw ConfigError(concat(place, ": '", content, "': comments begin with #; a value that has ",
                               "' ;' stands in quotes"));
    }
    if (content.front() == '[') {
      const auto inside = content.find_first_not_of(" \t", 1);
      if (content.back() != ']' || inside == content.size() - 1) {
        throw ConfigError(
            concat(place, ": '", content, "' is not of the form key = value or [section]"));
      }
      section = content;
      continue;
    }
    if (section.empty() && !is_base(content)) {
      throw ConfigError(
          concat(place, ": '", content, "' stands before any [section]; put it under one"));
    }
    const po::option option = option_of(section, content, place);
    const std::string plain = option.value.empty() ? "" : option.value.front();
    const std::string& value = quoted ? quoted->value : plain;
    if (section.empty()) {
      refuse_second_base(parsed.base, value, place);
      parsed.base = {value, place};
      continue;
    }
    const auto [earlier, is_new] = seen.emplace(option.string_key, place);
    if (!is_new) {
      throw ConfigError(concat(place, ": key '", option.string_key, "' is given twice (first at ",
                               earlier->second, "); keep one"));
    }
    parsed.assignments.push_back({option.string_key, value, {Level::File, place}});
  }
  return parsed;
}

/// The text of a file that `what` names. `advice`: what to do where there is none.
std::string text_of(const std::string& path, const std::string& what, const std::string& advice) {
  errno = 0;
  std::ifstream stream(path);
  const std::string reason = std::strerror(errno);
  std::error_code failed;
  const bool folder = std::filesystem::is_directory(path, failed);
  if (!stream || folder) {
    throw ConfigError(
        concat(what, " cannot be read: ", folder ? "it is a folder" : reason, "; ", advice));
  }
  std::ostringstream text;
  text << stream.rdbuf();
  if (text.str().find('\0') != std::string::npos) {
    throw ConfigError(concat(what, " is not text; ", advice));
  }
  return text.str();
}

std::string text_of_base(const std::string& path, const BaseLine& line) {
  const std::string there = path == line.value ? "" : concat(" (", path, ")");
  const std::string what = concat(line.place, ": base '", line.value, "'", there);
  const std::string advice =
      "give the path of an INI file, from the folder of the file that has it";
  if (line.value.empty()) throw ConfigError(concat(what, " is empty; ", advice));
  std::error_code failed;
  const std::filesystem::file_status found = std::filesystem::status(path, failed);
  if (exists(found) && !is_regular_file(found) && !is_directory(found)) {
    throw ConfigError(concat(what, " is not a file; ", advice));  // a pipe can be read but once
  }
  return text_of(path, what, advice);
}

}  // namespace

std::vector<Assignment> parse_ini(const std::string& text, const std::string& name) {
  IniText parsed = parse_lines(text, name);
  if (parsed.base) {
    throw ConfigError(concat(parsed.base->place, ": base '", parsed.base->value,
                             "' stands where no file is; drop the line"));
  }
  return std::move(parsed.assignments);
}

std::string ini_value(const std::string& value) {
  const auto outer = [](char letter) {
    return std::isspace(static_cast<unsigned char>(letter)) != 0 || letter == '"';
  };
  const bool plain = !value.empty() && value.find_first_of("#\r\n") == std::string::npos &&
                     !begins_comment(value) && !outer(value.front()) && !outer(value.back());
  if (plain) return value;
  std::string text = "\"";
  for (const char letter : value) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter == '\n' ? "\\n" : letter == '\r' ? "\\r" : std::string(1, letter);
  }
  return text + '"';
}

std::vector<Assignment> read_ini(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<Assignment> assignments;
  std::vector<std::string> files{path};  // each the base of the one before
  std::string text =
      text_of(path, concat("configuration file '", path, "'"), "give the path of an INI file");
  for (Level level = Level::File;; level = base_of(level)) {
    const std::string file = files.back();
    IniText parsed = parse_lines(text, file);
    for (Assignment& one : parsed.assignments) {
      one.origin.level = level;
      one.origin.file = file;
    }
    // A base stands before the files that start from it, so that the last of a key counts.
    assignments.insert(assignments.begin(), parsed.assignments.begin(), parsed.assignments.end());
    if (!parsed.base) return assignments;
    const std::string base = plain_path(fs::path(file).parent_path() / parsed.base->value).string();
    const bool seen = std::any_of(files.begin(), files.end(), [&](const std::string& earlier) {
      std::error_code failed;
      return fs::equivalent(earlier, base, failed);
    });
    files.push_back(base);
    if (seen) {
      throw ConfigError(concat(parsed.base->place, ": base '", parsed.base->value,
                               "' closes a circle (", join(files, " starts from "),
                               "); drop the line base = ... from one of them"));
    }
    text = text_of_base(base, *parsed.base);
  }
}

std::string lookup(const std::vector<Assignment>& assignments, const std::string& key,
                   const std::string& fallback) {
  std::string value = fallback;
  Level level = Level::Default;
  for (const Assignment& assignment : assignments) {
    if (assignment.key == key && assignment.origin.level >= level) {
      value = assignment.value;
      level = assignment.origin.level;
    }
  }
  return value;
}

}  // namespace fedhpc
