#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fedhpc {

/// The number a text holds, spaces around it and a leading plus sign allowed; nothing when it holds
/// anything else. "nan" and "inf" are numbers here.
std::optional<double> parse_number(std::string_view text);

/// The shortest text that reads back as this number.
std::string text_of(double number);

/// A text from a file, short enough for a message and free of control characters, in quotes.
std::string quoted(std::string_view text);

/// The different labels of two files in ascending order.
std::vector<double> distinct_labels(const std::vector<double>& train,
                                    const std::vector<double>& test);

/// Throws DataError naming the file unless there are at least two different labels.
void check_distinct(const std::vector<double>& distinct, const std::string& path);

/// The place of each label among `distinct`, which holds it: 0..K-1.
std::vector<std::int64_t> class_numbers(const std::vector<double>& labels,
                                        const std::vector<double>& distinct);

}  // namespace fedhpc
