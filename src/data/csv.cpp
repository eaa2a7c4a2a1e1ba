#include "data/csv.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "data/csv_rows.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

using Fields = std::vector<std::string_view>;

char letter_of(Separator separator, std::string_view text) {
  switch (separator) {
    case Separator::Comma:
      return ',';
    case Separator::Semicolon:
      return ';';
    case Separator::Tab:
      return '\t';
    default:
      return detected_separator(text);
  }
}

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::vector<std::string> names_of(const Fields& fields) { return {fields.begin(), fields.end()}; }

/// The column a key names among `count`: "last", a name of `names`, or a number from 0.
std::optional<std::size_t> find_column(const std::string& wanted,
                                       const std::vector<std::string>& names, std::size_t count) {
  if (wanted == "last") return count - 1;
  const auto named = std::find(names.begin(), names.end(), wanted);
  if (named != names.end()) return static_cast<std::size_t>(named - names.begin());
  const bool digits = wanted.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || wanted.empty() || wanted.size() > 9 || std::stoul(wanted) >= count) return {};
  return std::stoul(wanted);
}

std::string columns_text(std::size_t count) {
  return concat(count, count == 1 ? " column" : " columns");
}

/// The place of a column that a key names; none where it names none.
std::optional<std::size_t> placed(const std::string& key, const std::string& wanted,
                                  const CsvTable& table) {
  if (wanted.empty()) return std::nullopt;
  const auto place = find_column(wanted, table.header, table.columns);
  const auto called = std::ranges::find(table.header, wanted) - table.header.begin();
  if (wanted == "last" && called + 1 < std::ssize(table.header)) {
    throw ConfigError(concat("key '", key, "' cannot be 'last': column ", called, " of ",
                             table.path,
                             " is called so, and is not the last one; give the number of either, ",
                             called, " or ", table.columns - 1));
  }
  const auto named =
      !place || table.header.empty()
          ? 0
          : std::count(table.header.begin(), table.header.end(), table.header[*place]);
  if (named > 1 && wanted != std::to_string(*place)) {
    throw ConfigError(
        concat("key '", key, "' cannot be '", wanted, "': ", named, " columns of ", table.path,
               " are called ", in_quotes(table.header[*place]), ", and those that are not the ",
               key == "data.label_column" ? "label" : "client",
               " are features; remove them, or give a number from 0 to ", table.columns - 1));
  }
  if (place) return place;
  throw ConfigError(concat("key '", key, "' cannot be '", wanted,
                           "'; allowed: last, a number from 0 to ", table.columns - 1,
                           table.header.empty() ? "" : concat(", one of: ", join(table.header)),
                           " (data.file = ", table.path, ")"));
}

std::string sentence_of_header() {
  return "; set data.header = yes if the row names the columns, else data.header = no";
}

/// Whether a row is 0, 1, 2 and so on: the names that pandas gives columns without any.
bool counts_columns(const Fields& fields) {
  if (fields.size() < 2) return false;
  for (std::size_t column = 0; column < fields.size(); ++column) {
    if (without_spaces(fields[column]) != std::to_string(column)) return false;
  }
  return true;
}

/// Whether the features in a first row are names. Where no fewer of its cells are numbers, one that
/// is none may be a missing number; `words` are the columns that may hold words.
bool names_features(const CsvRows& rows, const std::vector<std::size_t>& words, bool first_file) {
  std::size_t numbers = 0;
  std::vector<std::size_t> others;
  for (std::size_t column = 0; column < rows.fields().size(); ++column) {
    if (parse_number(rows.fields()[column])) {
      ++numbers;
    } else if (std::find(words.begin(), words.end(), column) == words.end()) {
      others.push_back(column);
    }
  }
  if (others.empty() || numbers < others.size()) return !others.empty();
  if (!first_file) return false;  // as a row of data it is refused with its column
  rows.fail(", column ", others.front(), ": found ", in_quotes(rows.fields()[others.front()]),
            " in a first row with ", numbers, numbers == 1 ? " number" : " numbers",
            sentence_of_header());
}

/// Whether the first row of a file names its columns; `rows` stands before it.
bool begins_with_header(CsvRows rows, const CsvFormat& format, const CsvTable* like) {
  if (format.header != Header::Auto) return format.header == Header::Yes;
  if (!rows.next()) return false;
  const std::vector<std::string> first = names_of(rows.fields());
  if (like != nullptr && !like->header.empty() && first == like->header) return true;
  std::vector<std::size_t> words;  // columns that may hold words
  for (const std::string& wanted : {format.label_column, format.client_column}) {
    if (wanted.empty()) continue;
    const auto place = find_column(wanted, {}, first.size());
    if (!place && std::find(first.begin(), first.end(), wanted) != first.end()) return true;
    if (place) words.push_back(*place);
  }
  if (names_features(rows, words, like == nullptr)) return true;
  if (counts_columns(rows.fields())) {
    rows.fail(": the numbers 0 to ", first.size() - 1, " may be data or names",
              sentence_of_header());
  }
  // A word above a number is a name.
  if (!rows.next() || rows.fields().size() != first.size()) return false;
  return std::any_of(words.begin(), words.end(), [&](std::size_t column) {
    return !parse_number(first[column]) && parse_number(rows.fields()[column]);
  });
}

/// Takes what the first row says of the columns.
void take_columns(const CsvRows& rows, const CsvFormat& format, bool header, const CsvTable* like,
                  CsvTable& table) {
  table.columns = rows.fields().size();
  if (header) table.header = names_of(rows.fields());
  if (like == nullptr) {
    table.labels.place = placed("data.label_column", format.label_column, table);
    table.clients.place = placed("data.client_column", format.client_column, table);
    if (table.labels.place && table.labels.place == table.clients.place) {
      throw ConfigError(concat("data.label_column = ", format.label_column,
                               " and data.client_column = ", format.client_column,
                               " are the same column of ", table.path,
                               "; set them to two columns"));
    }
  } else {
    if (like->columns != table.columns) {
      rows.fail(": found ", columns_text(table.columns), ", expected ", like->columns, " as in '",
                like->path, "'");
    }
    if (header && like->header.empty()) {
      rows.fail(": found the names of columns ", in_quotes(join(table.header)),
                ", expected a row of data, as '", like->path, "' begins with",
                sentence_of_header());
    }
    if (header && table.header != like->header) {
      rows.fail(": found the columns ", in_quotes(join(table.header)), ", expected ",
                in_quotes(join(like->header)), " as in '", like->path, "'");
    }
    table.labels.place = like->labels.place;
    table.clients.place = like->clients.place;
  }
  table.features = table.columns - (table.labels.place ? 1 : 0) - (table.clients.place ? 1 : 0);
}

double finite_number(const CsvRows& rows, std::size_t column) {
  const std::string_view field = rows.fields()[column];
  const std::optional<double> number = parse_number(field);
  if (number && std::isfinite(*number)) return *number;
  const bool comma = field.find(',') != std::string_view::npos;
  rows.fail(", column ", column, ": found ", in_quotes(field), ", expected a finite number",
            comma ? " with a point, not a comma" : "", "; remove or repair the row");
}

/// Takes a label or a client: numbers in all rows, or words in all. Numbers that are `names` tell
/// classes or clients apart.
void take_word(const CsvRows& rows, std::size_t column, const CsvTable& table, bool names,
               CsvColumn& words) {
  const std::string_view word = without_spaces(rows.fields()[column]);
  const bool number = parse_number(word).has_value();
  if (number && !words.words.empty()) {
    rows.fail(", column ", column, ": found the number ", in_quotes(word),
              ", expected a word as in ", "line ", table.lines.front());
  }
  if (number || word.empty() || !words.numbers.empty()) {
    words.numbers.push_back(finite_number(rows, column));
    if (names && may_merge(words.numbers.back())) {
      rows.fail(", column ", column, ": found ", in_quotes(word),
                ", expected a number below 2^53, from which on numbers merge; write words in this "
                "column, such as ",
                in_quotes(concat("u", word)));
    }
  } else {
    if (!is_utf8(word)) {
      rows.fail(", column ", column, ": found ", in_quotes(word),
                ", which is not UTF-8; save the file in that encoding");
    }
    words.words.emplace_back(word);
  }
}

void take_row(const CsvRows& rows, bool classes, CsvTable& table) {
  if (rows.fields().size() != table.columns) {
    rows.fail(": found ", columns_text(rows.fields().size()), ", expected ", table.columns,
              " as in the first row");
  }
  for (std::size_t column = 0; column < table.columns; ++column) {
    if (column == table.labels.place) {
      take_word(rows, column, table, classes, table.labels);
    } else if (column == table.clients.place) {
      take_word(rows, column, table, true, table.clients);
    } else {
      table.cells.push_back(finite_number(rows, column));
    }
  }
  table.lines.push_back(rows.line());
}

/// A class of one sample in the first row: more likely the name of the column over features whose
/// names are numbers.
void check_first_label(const CsvTable& table, bool classes) {
  const auto once = [](const auto& labels) {
    return labels.size() > 1 && std::count(labels.begin(), labels.end(), labels.front()) == 1;
  };
  const CsvColumn& labels = table.labels;
  std::string name;
  if (once(labels.words)) {
    name = in_quotes(labels.words.front());
  } else if (classes && once(labels.numbers)) {
    name = text_of(labels.numbers.front());
  } else {
    return;
  }
  throw DataError(concat("csv file '", table.path, "', line ", table.lines.front(), ": the label ",
                         name, " is in no other row", sentence_of_header()));
}

/// Whether pandas or R gave this name to a column that has none.
bool is_no_name(std::string_view name) {
  return without_spaces(name).empty() || name.starts_with("Unnamed: ");
}

/// Refuses row numbers as a feature: pandas and R write them in front, without a name. After a
/// split they are in any order.
void check_first_column(const CsvTable& table) {
  const bool feature = table.labels.place != 0U && table.clients.place != 0U;
  if (table.header.empty() || !feature || table.rows() < 2 || !is_no_name(table.header.front())) {
    return;
  }
  std::vector<double> numbers;
  for (std::size_t row = 0; row < table.lines.size(); ++row) {
    numbers.push_back(table.cells[row * table.features]);
    if (numbers.back() < 0 || numbers.back() != std::floor(numbers.back())) return;
  }
  std::ranges::sort(numbers);
  if (std::ranges::adjacent_find(numbers) != numbers.end()) return;
  throw DataError(concat("csv file '", table.path,
                         "', column 0: it has no name and counts the rows, as pandas writes its "
                         "index; write the file with index=False (in R with row.names=FALSE), or "
                         "name the column"));
}

}  // namespace

CsvTable parse_csv(std::span<const std::uint8_t> bytes, const std::string& path,
                   const CsvFormat& format, const CsvTable* like) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CsvRows rows(text, path, letter_of(format.separator, text));
  const bool header = begins_with_header(rows, format, like);
  CsvTable table;
  table.path = path;
  while (rows.next()) {
    if (table.columns == 0) {
      take_columns(rows, format, header, like, table);
      if (header) continue;
    }
    take_row(rows, format.classes, table);
  }
  if (table.lines.empty()) rows.fail(": found the end of the file, expected a row of numbers");
  if (!header && format.header == Header::Auto && like == nullptr) {
    check_first_label(table, format.classes);
  }
  if (like == nullptr) check_first_column(table);
  return table;
}

}  // namespace fedhpc
