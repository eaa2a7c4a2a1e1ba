// `--section.key=value`.

#include <optional>

#include <boost/program_options.hpp>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace po = boost::program_options;

namespace {

/// `--section.key=value` as Boost reads it; nothing where it is not of that form.
std::optional<po::option> option_of(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (!argument.starts_with("--") || equals == std::string::npos || equals == 2) return {};
  // Boost refuses an empty value without saying of which key.
  if (equals + 1 == argument.size()) return po::option(argument.substr(2, equals - 2), {""});
  // No guessing: a prefix of a key is not the key.
  const int style =
      po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent;
  try {
    const po::parsed_options parsed = po::command_line_parser(std::vector<std::string>{argument})
                                          .options(po::options_description())
                                          .style(style)
                                          .allow_unregistered()
                                          .run();
    require(parsed.options.size() == 1, "one argument is one option");
    return parsed.options.front();
  } catch (const po::error&) {
    return {};
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

std::vector<Assignment> parse_command_line(const std::vector<std::string>& arguments) {
  std::vector<Assignment> assignments;
  const Origin origin{Level::CommandLine, "command line"};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::optional<po::option> option = option_of(arguments[i]);
    if (!option) {
      throw ConfigError(concat(origin.place, ": '", arguments[i],
                               "' is not of the form --section.key=value",
                               suggestion(with_equals_sign(arguments, i))));
    }
    assignments.push_back({option->string_key, option->value.front(), origin});
  }
  return assignments;
}

}  // namespace fedhpc
