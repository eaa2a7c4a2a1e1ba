// Tables of numbers: any CSV file (data.name = csv) and Covertype.

#include <algorithm>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

#include "data/block_dataset.hpp"
#include "data/byte_source.hpp"
#include "data/csv.hpp"
#include "data/datasets.hpp"
#include "data/described_dataset.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

RowBlock<double> block_of(CsvTable&& table) {
  return {.values = std::move(table.cells), .stride = table.features, .count = table.rows()};
}

/// The labels or clients of two files as numbers from 0, in the order of their values or words.
struct Numbered {
  std::vector<std::int64_t> rows;  // of the first file, then of the second
  std::vector<std::string> names;  // of each number
};

Numbered numbered(const CsvTable& train, const CsvTable& test, CsvColumn CsvTable::*column) {
  const CsvColumn& a = train.*column;
  const CsvColumn& b = test.*column;
  if (test.rows() > 0 && a.words.empty() != b.words.empty()) {
    const char* kinds[] = {"words", "numbers"};
    throw DataError(concat("csv file '", test.path, "', column ", *b.place, ": found ",
                           kinds[b.words.empty() ? 1 : 0], ", expected ",
                           kinds[a.words.empty() ? 1 : 0], " as in '", train.path, "'"));
  }
  Numbered result;
  if (a.words.empty()) {
    const std::vector<double> values = distinct(a.numbers, b.numbers);
    result.rows = places(a.numbers, b.numbers, values);
    for (const double value : values) result.names.push_back(text_of(value));
  } else {
    result.names = distinct(a.words, b.words);
    result.rows = places(a.words, b.words, result.names);
  }
  return result;
}

/// The label columns of both files as the numbers of a regression, [S, 1].
Tensor numbers_of(const CsvTable& train, const CsvTable& test) {
  for (const CsvTable* table : {&train, &test}) {
    if (table->labels.words.empty()) continue;
    throw DataError(concat("csv file '", table->path, "', column ", *table->labels.place,
                           ": found words, expected numbers with data.label_kind = number"));
  }
  return numbers_as_targets(train.labels.numbers, test.labels.numbers);
}

}  // namespace

std::unique_ptr<Dataset> open_csv(const DataOptions& options) {
  const CsvFormat format{.separator = options.separator,
                         .header = options.header,
                         .label_column = options.label_column,
                         .client_column = options.client_column,
                         .classes = options.label_kind != LabelKind::Number};
  CsvTable train = parse_csv(read_bytes(data_file(options)), options.file, format);
  if (train.features == 0) {
    throw DataError(
        concat("csv file '", options.file, "', line 1: found ", train.columns,
               train.columns == 1 ? " column" : " columns",
               ", expected a label and at least one feature, separated by commas or as ",
               "data.separator says"));
  }
  CsvTable test;
  if (!options.test_file.empty()) {
    test = parse_csv(read_bytes(options.test_file), options.test_file, format, &train);
  }
  Description description;
  Numbered labels;
  if (options.label_kind == LabelKind::Number) {
    description.targets = numbers_of(train, test);
    labels = {
        .rows = std::vector<std::int64_t>(static_cast<std::size_t>(description.targets.size(0)), 0),
        .names = {}};
  } else {
    labels = numbered(train, test, &CsvTable::labels);
    check_distinct(labels.names, options.file);
    if (options.label_kind == LabelKind::Auto && train.labels.words.empty()) {
      check_classes(labels.rows, std::ssize(labels.names), options.file);
    }
  }
  if (train.clients.place) {
    Numbered clients = numbered(train, test, &CsvTable::clients);
    description.clients = std::move(clients.rows);
    description.client_names = std::move(clients.names);
  }
  const auto classes = std::max<std::int64_t>(std::ssize(labels.names), 1);
  description.class_names = std::move(labels.names);
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(train.features)};
  const std::int64_t num_train = train.rows();
  std::vector<RowBlock<double>> blocks;
  blocks.push_back(block_of(std::move(train)));
  blocks.push_back(block_of(std::move(test)));
  return std::make_unique<DescribedDataset>(
      std::make_unique<BlockDataset<double>>(shape, classes, num_train, std::move(blocks),
                                             std::move(labels.rows)),
      std::move(description));
}

std::unique_ptr<Dataset> open_covtype(const DataOptions& options) {
  constexpr std::int64_t kFeatures = 54;
  constexpr std::int64_t kClasses = 7;
  const std::string path = locate(data_directory(options), "covtype", "covtype.data", options.name);
  CsvTable table =
      parse_csv(read_bytes(path), path, {.header = Header::No, .label_column = "last"});
  if (table.columns != kFeatures + 1) {
    throw DataError(concat("Covertype file '", path, "', line 1: found ", table.columns,
                           " columns, expected 54 features and the label"));
  }
  const auto fail = [&](std::size_t row, const auto& label) {
    throw DataError(concat("Covertype file '", path, "', line ", table.lines[row],
                           ", column 54: found label ", label, ", expected 1 to 7"));
  };
  if (!table.labels.words.empty()) fail(0, in_quotes(table.labels.words.front()));
  std::vector<std::int64_t> labels;
  for (const double label : table.labels.numbers) {
    const bool known = label >= 1 && label <= kClasses && label == static_cast<int>(label);
    if (!known) fail(labels.size(), label);
    labels.push_back(static_cast<std::int64_t>(label) - 1);
  }
  const std::int64_t rows = table.rows();
  std::vector<RowBlock<double>> blocks;
  blocks.push_back(block_of(std::move(table)));
  return std::make_unique<BlockDataset<double>>(std::vector<std::int64_t>{kFeatures}, kClasses,
                                                rows, std::move(blocks), std::move(labels));
}

}  // namespace fedhpc
