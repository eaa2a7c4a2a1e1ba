#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace fedhpc {

/// The text with spaces for control characters, as a value quoted from a file may hold them.
std::string one_line(std::string text);

/// Base of all errors a user can meet; `what()` is one complete sentence, on one line.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string sentence) : std::runtime_error(one_line(std::move(sentence))) {}
};

/// A configuration that cannot be run: names key, value, what is allowed. Same on all ranks;
/// exit 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A data or partition file that cannot be used: names file and place. Agreed over ranks; exit 2.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Calls `work`, which runs rounds: what it refuses, one rank alone may have met. A ConfigError or
/// DataError, which all ranks have to have, becomes an Error.
template <typename Work>
void in_rounds(const Work& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    throw Error(error.what());
  } catch (const DataError& error) {
    throw Error(error.what());
  }
}

/// Concatenates its arguments with operator<<.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

/// Throws std::logic_error with the place of the call: a broken precondition is our own bug.
void require(bool condition, const char* what, const char* file = __builtin_FILE(),
             int line = __builtin_LINE(), const char* function = __builtin_FUNCTION());

}  // namespace fedhpc
