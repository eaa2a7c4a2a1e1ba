#include "data/libsvm.hpp"

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

TEST(LibsvmTest, LinesCommentsAndSigns) {
  const LibsvmTable table =
      parse_libsvm(bytes_of("+1 1:.5 \t3:-2e1\r\n# nothing\n\n-1 # no feature\n+1 2:4"), "t");
  EXPECT_EQ(table.labels, (std::vector<double>{1, -1, 1}));
  EXPECT_EQ(table.offsets, (std::vector<std::int64_t>{0, 2, 2, 3}));
  EXPECT_EQ(table.columns, (std::vector<std::int32_t>{0, 2, 1}));
  EXPECT_EQ(table.values, (std::vector<double>{.5, -20, 4}));
  EXPECT_EQ(table.width, 3);
}

TEST(LibsvmTest, ABadFileIsNamedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"# nothing\n", "line 1: found the end of the file, expected a line"},
      {"1 1:2\nx 1:2\n", "line 2: found 'x', expected a label that is a finite number"},
      {"nan 1:2\n", "line 1: found 'nan', expected a label"},
      {"1,2 1:2\n", "line 1: found '1,2', expected a label"},
      {"1 0:2\n", "line 1: found '0:2', expected index:value with an index from 1"},
      {"1 2\n", "line 1: found '2', expected index:value"},
      {"1 :2\n", "line 1: found ':2', expected index:value"},
      {"1 qid:3 1:2\n", "line 1: found 'qid:3', expected index:value"},
      {"1 2147483648:2\n", "line 1: found '2147483648:2', expected index:value"},
      {"1 1:\n", "line 1: found '', expected a value that is a finite number"},
      {"1 1:inf\n", "line 1: found 'inf', expected a value"},
      {"1 1:2:3\n", "line 1: found '2:3', expected a value"},
      {"\n1 3:1 3:2\n", "line 2: found index 3 after 3, expected ascending indices"}};
  for (const auto& [text, part] : bad) {
    expect_in("libsvm file 't', " + part,
              message_of<DataError>([&] { parse_libsvm(bytes_of(text), "t"); }));
  }
}

TEST(LibsvmDatasetTest, WidthAndLabelsComeFromBothFiles) {
  const TemporaryFolder folder;
  DataOptions options;
  options.name = "libsvm";
  options.file = folder.path("a");
  options.test_file = folder.path("b.gz");
  write_bytes(options.file, bytes_of("+1 1:1 2:2\n-1 2:3\n"));
  append_gzip(options.test_file, bytes_of("0 4:5\n"));
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(data->classes(), 3);
  EXPECT_EQ(data->num_train(), 2);
  EXPECT_EQ(data->num_test(), 1);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{2, 0, 1}));
  const std::vector<std::int64_t> ids = {2, 0, 1};
  const Samples samples = data->read(ids);
  const auto* begin = samples.features.data_ptr<double>();
  EXPECT_EQ(std::vector<double>(begin, begin + 12),
            (std::vector<double>{0, 0, 0, 5, 1, 2, 0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(samples.labels.data_ptr<std::int64_t>()[1], 2);

  options.test_file.clear();
  EXPECT_EQ(open_dataset(options)->num_test(), 0);
  write_bytes(options.file, bytes_of("1\n2\n"));
  expect_in("found labels only", message_of<DataError>([&] { open_dataset(options); }));
  options.file.clear();
  expect_in("data.name = libsvm needs the key data.file",
            message_of<ConfigError>([&] { open_dataset(options); }));
}

TEST(LibsvmDatasetTest, NumbersOfARegressionAreNoClasses) {
  const TemporaryFolder folder;
  DataOptions options;
  options.name = "libsvm";
  options.file = folder.path("a");
  std::string text;
  for (int i = 0; i < 20; ++i) text += concat(i / 4.0, " 1:", i, "\n");
  write_bytes(options.file, bytes_of(text));
  expect_in("a': 20 of 20 samples have a label that no other one has; set data.label_kind = number",
            message_of<DataError>([&] { open_dataset(options); }));
  options.label_kind = LabelKind::Number;
  const auto data = open_dataset(options);
  EXPECT_EQ(data->classes(), 1);
  EXPECT_EQ(data->targets().kind, Targets::Kind::Numbers);
  const std::vector<std::int64_t> ids = {19, 2};
  const Samples samples = data->read(ids);
  EXPECT_EQ(samples.targets[0].item<double>(), 4.75);
  EXPECT_EQ(samples.features[1].item<double>(), 2);

  options.label_kind = LabelKind::Class;
  EXPECT_EQ(open_dataset(options)->classes(), 20);
  options.label_kind = LabelKind::Auto;
  text += "0 1:1\n";
  for (int i = 1; i < 10; ++i) text += concat(i / 4.0, " 1:1\n");  // half of the labels twice
  write_bytes(options.file, bytes_of(text));
  EXPECT_EQ(open_dataset(options)->classes(), 20);
}

}  // namespace
}  // namespace fedhpc
