#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fedhpc {

/// Returns the number in a text, spaces around it and a leading plus sign allowed; nothing for any
/// other text. "nan" and "inf" are numbers here.
std::optional<double> parse_number(std::string_view text);

/// Returns the shortest text that reads back as this number.
std::string text_of(double number);

/// Whether a label or an id that was read as this number may have been another one: 2^53 + 1 reads
/// as 2^53.
bool may_merge(double number);

/// Quotes a text from a file, short enough for a message and free of control characters.
std::string in_quotes(std::string_view text);

/// Returns the different labels of two files in ascending order.
std::vector<double> distinct_labels(const std::vector<double>& train,
                                    const std::vector<double>& test);

/// Throws DataError naming the file unless there are at least two different labels.
void check_distinct(const std::vector<std::string>& names, const std::string& path);

/// Throws DataError naming the file where a label may have been another one.
void check_exact(const std::vector<double>& labels, const std::string& path);

/// Throws DataError naming the file where most of 20 numbers or more, places among the different
/// ones, are there once: they look like those of a regression.
void check_classes(const std::vector<std::int64_t>& places, std::int64_t different,
                   const std::string& path);

/// Returns the place of each label among `distinct`, which holds it: 0..K-1.
std::vector<std::int64_t> class_numbers(const std::vector<double>& labels,
                                        const std::vector<double>& distinct);

}  // namespace fedhpc
