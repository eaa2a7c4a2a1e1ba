#include "fedhpc/core/configuration_source.hpp"

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

void refuse_twice(std::map<std::string, std::string>& seen, const std::string& key,
                  const std::string& place) {
  const auto [earlier, is_new] = seen.emplace(key, place);
  if (!is_new) {
    throw ConfigError(concat(place, ": key '", key, "' is given twice (first at ", earlier->second,
                             "); keep one"));
  }
}

/// `--section.key=value` where arguments[i] and its neighbours hold that in another form; "" where
/// they do not.
std::string with_equals_sign(const std::vector<std::string>& arguments, std::size_t i) {
  const std::size_t begin = arguments[i].find_first_not_of('-');
  if (begin == std::string::npos || arguments[i].find('.') == std::string::npos) return {};
  std::string text = "--" + arguments[i].substr(begin);
  if (text.find('=') != std::string::npos) return text == arguments[i] ? "" : text;
  for (++i; i < arguments.size() && !arguments[i].starts_with("--"); ++i) {
    const std::size_t value = arguments[i].find_first_not_of('=');
    if (value != std::string::npos) return concat(text, '=', arguments[i].substr(value));
  }
  return {};
}

}  // namespace

std::vector<Assignment> parse_ini(const std::string& text, const std::string& name) {
  // Boost parses a file as a whole and does not tell where it stumbled. Fed line by line, under the
  // section of that line, it keeps its syntax and we know the line.
  std::vector<Assignment> assignments;
  std::map<std::string, std::string> seen;
  std::istringstream stream(text);
  std::string section;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string place = concat(name, ":", number);
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);  // some editors' mark
    const std::optional<QuotedLine> quoted = quoted_line(line, place);
    const std::string content = without_comment(quoted ? quoted->line : line);
    if (content.empty()) continue;
    if (content.front() == '[') {
      const auto inside = content.find_first_not_of(" \t", 1);
      if (content.back() != ']' || inside == content.size() - 1) {
        throw ConfigError(
            concat(place, ": '", content, "' is not of the form key = value or [section]"));
      }
      section = content;
      continue;
    }
    if (section.empty()) {
      throw ConfigError(
          concat(place, ": '", content, "' stands before any [section]; put it under one"));
    }
    po::parsed_options parsed(nullptr);
    try {
      std::istringstream one(section + "\n" + content + "\n");
      parsed = po::parse_config_file(one, po::options_description(), /*allow_unregistered=*/true);
    } catch (const po::error&) {
      throw ConfigError(concat(place, ": '", content, "' is not of the form key = value"));
    }
    require(parsed.options.size() == 1, "one line of an INI file is one option");
    const po::option& option = parsed.options.front();
    if (option.string_key.ends_with('.')) {
      throw ConfigError(concat(place, ": '", content, "' is not of the form key = value"));
    }
    refuse_twice(seen, option.string_key, place);
    const std::string plain = option.value.empty() ? "" : option.value.front();
    assignments.push_back(
        {option.string_key, quoted ? quoted->value : plain, {Level::File, place}});
  }
  return assignments;
}

std::string ini_value(const std::string& value) {
  const auto outer = [](char letter) {
    return std::isspace(static_cast<unsigned char>(letter)) != 0 || letter == '"';
  };
  const bool plain = !value.empty() && value.find_first_of("#\r\n") == std::string::npos &&
                     !outer(value.front()) && !outer(value.back());
  if (plain) return value;
  std::string text = "\"";
  for (const char letter : value) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter == '\n' ? "\\n" : letter == '\r' ? "\\r" : std::string(1, letter);
  }
  return text + '"';
}

std::vector<Assignment> read_ini(const std::string& path) {
  errno = 0;
  std::ifstream stream(path);
  const bool folder = std::filesystem::is_directory(path);
  if (!stream || folder) {
    throw ConfigError(concat("configuration file '", path,
                             "' cannot be read: ", folder ? "it is a folder" : std::strerror(errno),
                             "; give the path of an INI file"));
  }
  std::ostringstream text;
  text << stream.rdbuf();
  if (text.str().find('\0') != std::string::npos) {
    throw ConfigError(
        concat("configuration file '", path, "' is not text; give the path of an INI file"));
  }
  return parse_ini(text.str(), path);
}

std::vector<Assignment> parse_command_line(const std::vector<std::string>& arguments) {
  std::vector<Assignment> assignments;
  const std::string place = "command line";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    po::parsed_options parsed(nullptr);
    const auto refuse = [&]() -> ConfigError {
      return ConfigError(concat(place, ": '", argument, "' is not of the form --section.key=value",
                                suggestion(with_equals_sign(arguments, i))));
    };
    const std::size_t equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string::npos || equals == 2) throw refuse();
    // No guessing: a prefix of a key is not the key.
    const int style =
        po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent;
    const std::string key = argument.substr(2, equals - 2);
    const std::string value = argument.substr(equals + 1);
    if (!value.empty()) {  // Boost refuses an empty value without saying of which key
      try {
        parsed = po::command_line_parser(std::vector<std::string>{argument})
                     .options(po::options_description())
                     .style(style)
                     .allow_unregistered()
                     .run();
      } catch (const po::error&) {
        throw refuse();
      }
      require(parsed.options.size() == 1, "one argument is one option");
    }
    assignments.push_back({key, value, {Level::CommandLine, place}});
  }
  return assignments;
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
