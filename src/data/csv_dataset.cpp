// Tables of numbers: any CSV file (data.name = csv) and Covertype.

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

#include "data/block_dataset.hpp"
#include "data/byte_source.hpp"
#include "data/csv.hpp"
#include "data/datasets.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

/// The column data.label_column names: "last", a name of the header, or a number from 0.
std::size_t label_column(const CsvTable& table, const DataOptions& options) {
  const std::string& wanted = options.label_column;
  if (wanted == "last") return table.columns - 1;
  for (std::size_t column = 0; column < table.header.size(); ++column) {
    if (table.header[column] == wanted) return column;
  }
  const bool digits = wanted.find_first_not_of("0123456789") == std::string::npos;
  if (digits && wanted.size() < 10 && std::stoul(wanted) < table.columns) {
    return std::stoul(wanted);
  }
  throw ConfigError(concat("key 'data.label_column' cannot be '", wanted,
                           "'; allowed: last, a number from 0 to ", table.columns - 1,
                           table.header.empty() ? "" : concat(", one of: ", join(table.header)),
                           " (data.file = ", options.file, ")"));
}

std::vector<double> column_of(const CsvTable& table, std::size_t column) {
  std::vector<double> numbers;
  for (std::size_t at = column; at < table.cells.size(); at += table.columns) {
    numbers.push_back(table.cells[at]);
  }
  return numbers;
}

RowBlock<double> block_of(CsvTable&& table, std::size_t label) {
  return {.values = std::move(table.cells),
          .first = 0,
          .stride = table.columns,
          .count = table.rows(),
          .left_out = label};
}

/// The two files must have the same columns.
void check_columns(const CsvTable& train, const CsvTable& test, const DataOptions& options) {
  const std::string place = concat("csv file '", options.test_file, "', line 1: found ");
  if (train.columns != test.columns) {
    throw DataError(concat(place, test.columns, " columns, expected ", train.columns, " as in '",
                           options.file, "'"));
  }
  if (!train.header.empty() && !test.header.empty() && train.header != test.header) {
    throw DataError(concat(place, "the columns ", quoted(join(test.header)), ", expected ",
                           quoted(join(train.header)), " as in '", options.file, "'"));
  }
}

}  // namespace

std::unique_ptr<Dataset> open_csv(const DataOptions& options) {
  CsvTable train = parse_csv(read_bytes(data_file(options)), options.file);
  if (train.columns < 2) {
    throw DataError(concat("csv file '", options.file,
                           "', line 1: found 1 column, expected a label and at least one feature, "
                           "separated by commas"));
  }
  const std::size_t label = label_column(train, options);
  CsvTable test;
  if (!options.test_file.empty()) {
    test = parse_csv(read_bytes(options.test_file), options.test_file);
    check_columns(train, test, options);
  }
  test.columns = train.columns;
  const std::vector<double> train_labels = column_of(train, label);
  const std::vector<double> test_labels = column_of(test, label);
  const std::vector<double> distinct = distinct_labels(train_labels, test_labels);
  check_distinct(distinct, options.file);
  std::vector<std::int64_t> labels = class_numbers(train_labels, distinct);
  const std::vector<std::int64_t> more = class_numbers(test_labels, distinct);
  labels.insert(labels.end(), more.begin(), more.end());

  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(train.columns) - 1};
  const std::int64_t num_train = train.rows();
  std::vector<RowBlock<double>> blocks;
  blocks.push_back(block_of(std::move(train), label));
  blocks.push_back(block_of(std::move(test), label));
  return std::make_unique<BlockDataset<double>>(shape, static_cast<std::int64_t>(distinct.size()),
                                                num_train, std::move(blocks), std::move(labels));
}

std::unique_ptr<Dataset> open_covtype(const DataOptions& options) {
  constexpr std::int64_t kFeatures = 54;
  constexpr std::int64_t kClasses = 7;
  const std::string path = locate(data_directory(options), "covtype", "covtype.data", options.name);
  CsvTable table = parse_csv(read_bytes(path), path);
  if (!table.header.empty() || table.columns != kFeatures + 1) {
    throw DataError(concat("Covertype file '", path, "', line 1: found ", table.columns,
                           table.header.empty() ? " columns" : " columns with names",
                           ", expected 54 features and the label"));
  }
  std::vector<std::int64_t> labels;
  for (std::int64_t row = 0; row < table.rows(); ++row) {
    const double label = table.cells[static_cast<std::size_t>((row + 1) * (kFeatures + 1) - 1)];
    const bool known = label >= 1 && label <= kClasses && label == static_cast<int>(label);
    if (!known) {
      throw DataError(concat("Covertype file '", path, "', line ",
                             table.lines[static_cast<std::size_t>(row)],
                             ", column 54: found label ", label, ", expected 1 to 7"));
    }
    labels.push_back(static_cast<std::int64_t>(label) - 1);
  }
  const std::int64_t rows = table.rows();
  std::vector<RowBlock<double>> blocks;
  blocks.push_back(block_of(std::move(table), kFeatures));
  return std::make_unique<BlockDataset<double>>(std::vector<std::int64_t>{kFeatures}, kClasses,
                                                rows, std::move(blocks), std::move(labels));
}

}  // namespace fedhpc
