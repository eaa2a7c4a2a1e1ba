#include "data/csv.hpp"

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/partition.hpp"

#include "data/numbers.hpp"
#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::vector<double> row_of(const Samples& samples, std::int64_t row) {
  const std::int64_t width = samples.features.size(1);
  const auto* begin = samples.features.data_ptr<double>() + row * width;
  return {begin, begin + width};
}

TEST(CsvTest, NumbersQuotesAndLineEnds) {
  const CsvTable table =
      parse_csv(bytes_of("\xEF\xBB\xBF\r\n1,\"-2.5\", 3e2 \r\n\n\"+4\",.5,-0\n7,8,9"), "t");
  EXPECT_TRUE(table.header.empty());
  EXPECT_EQ(table.columns, 3U);
  EXPECT_EQ(table.cells, (std::vector<double>{1, -2.5, 300, 4, .5, 0, 7, 8, 9}));
  EXPECT_EQ(table.lines, (std::vector<std::int64_t>{2, 4, 5}));
  EXPECT_EQ(parse_csv(bytes_of("1e-400,-1e-400\n"), "t").cells, (std::vector<double>{0, 0}));
}

TEST(CsvTest, WordsAreUtf8) {
  for (const char* word :
       {"", "Jos\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(word)) << word;
  }
  EXPECT_EQ(in_quotes(std::string(39, 'x') + "\xc3\xa9"), "'" + std::string(39, 'x') + "...'");
  for (const char* word : {"Jos\xe9", "\xc3", "a\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xe2\x82",
                           "\xe2\x82x", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_utf8(word)) << word;
  }
}

TEST(CsvTest, TheFirstRowIsAHeaderWhenAFieldIsNoNumber) {
  const CsvTable table = parse_csv(bytes_of("1,\"a, \"\"b\"\"\n\",\n1,2,3\n"), "t");
  EXPECT_EQ(table.header, (std::vector<std::string>{"1", "a, \"b\"\n", ""}));
  EXPECT_EQ(table.cells, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(table.lines, (std::vector<std::int64_t>{3}));
}

TEST(CsvTest, ABadFileIsNamedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "line 1: found the end of the file, expected a row of numbers"},
      {"a,b\n", "line 1: found the end of the file"},
      {"1,2\n3\n", "line 2: found 1 column, expected 2 as in the first row"},
      {"1,2\n3,4,5\n", "line 2: found 3 columns, expected 2"},
      {"1,2\n3,4,", "line 2: found 3 columns, expected 2"},
      {"x,y\n\n1,2\n3,four\n", "line 4, column 1: found 'four', expected a finite number"},
      {"1,2\n3,\n", "line 2, column 1: found '', expected a finite number"},
      {"1,2\nnan,4\n", "line 2, column 0: found 'nan'"},
      {"1,inf\n", "line 1, column 1: found 'inf'"},
      {"1,2\n+-3,4\n", "line 2, column 0: found '+-3'"},
      {"1,2\n0x1,4\n", "line 2, column 0: found '0x1'"},
      {"1,2\n1e999,4\n", "line 2, column 0: found '1e999'"},
      {"1,\"2\n3\n", "line 1, column 1: found a double quote that nothing closes"},
      {"1,\"2\"x\n", "line 1, column 1: found 'x' behind a quoted field, expected a comma"}};
  for (const auto& [text, part] : bad) {
    expect_in("csv file 't.csv', " + part,
              message_of<DataError>([&] { parse_csv(bytes_of(text), "t.csv"); }));
  }
}

class CsvDatasetTest : public ::testing::Test {
 protected:
  CsvDatasetTest() {
    options.name = "csv";
    options.file = folder.path("a.csv");
  }
  void write(const std::string& text) { write_bytes(options.file, bytes_of(text)); }

  TemporaryFolder folder;
  DataOptions options;
};

TEST_F(CsvDatasetTest, LabelsOfBothFilesAreNumberedInSortedOrder) {
  write("u,v,y\n1,2,10\n3,4,-1\n");
  options.test_file = folder.path("b.csv.xz");
  write_bytes(options.test_file, xz_bytes(bytes_of("5,6,2.5\n")));
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(data->classes(), 3);
  EXPECT_EQ(data->num_train(), 2);
  EXPECT_EQ(data->num_test(), 1);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{2, 0, 1}));
  const std::vector<std::int64_t> ids = {2, 0};
  const Samples samples = data->read(ids);
  EXPECT_EQ(row_of(samples, 0), (std::vector<double>{5, 6}));
  EXPECT_EQ(row_of(samples, 1), (std::vector<double>{1, 2}));
  EXPECT_EQ(samples.labels.data_ptr<std::int64_t>()[0], 1);
}

TEST_F(CsvDatasetTest, NumbersOfARegression) {
  write("u,v,y\n1,2,1.5\n3,4,-1\n");
  options.test_file = folder.path("b.csv");
  options.label_kind = LabelKind::Number;
  write_bytes(options.test_file, bytes_of("5,6,2.5\n"));
  const auto data = open_dataset(options);
  EXPECT_EQ(data->targets().kind, Targets::Kind::Numbers);
  EXPECT_EQ(data->targets().count, 1);
  EXPECT_EQ(data->classes(), 1);
  EXPECT_TRUE(data->class_names().empty());
  const std::vector<std::int64_t> ids = {2, 1};
  const Samples samples = data->read(ids);
  EXPECT_EQ(samples.targets[0][0].item<double>(), 2.5);
  EXPECT_EQ(samples.targets[1][0].item<double>(), -1);
  EXPECT_EQ(samples.labels[0].item<std::int64_t>(), 0);
  write_bytes(options.test_file, bytes_of("5,6,flu\n"));
  expect_in("b.csv', column 2: found words, expected numbers with data.label_kind = number",
            message_of<DataError>([&] { open_dataset(options); }));
}

TEST_F(CsvDatasetTest, TheLabelColumnHasANameOrANumber) {
  write("y,u,v\n0,2,3\n1,5,6\n");
  const std::vector<std::int64_t> ids = {1};
  for (const char* column : {"y", "0"}) {
    options.label_column = column;
    const auto data = open_dataset(options);
    EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(row_of(data->read(ids), 0), (std::vector<double>{5, 6}));
  }
  options.label_column = "u";
  EXPECT_EQ(row_of(open_dataset(options)->read(ids), 0), (std::vector<double>{1, 6}));
  for (const char* column : {"w", "3", "-1", "99999999999999999999"}) {
    options.label_column = column;
    expect_in("'; allowed: last, a number from 0 to 2, one of: y, u, v (data.file = ",
              message_of<ConfigError>([&] { open_dataset(options); }));
  }
}

TEST_F(CsvDatasetTest, WhatDoesNotFitIsRefused) {
  const auto message = [&] { return message_of<DataError>([&] { open_dataset(options); }); };
  expect_in("a.csv' cannot be read: No such file", message());
  write("1\n1\n");
  expect_in("a.csv', line 1: found 1 column, expected a label and at least one feature", message());
  write("1,7\n2,7\n");
  expect_in("a.csv': found the label 7 only, expected at least two", message());
  write("u,y\n1,7\n2,8\n");
  options.test_file = folder.path("b.csv");
  write_bytes(options.test_file, bytes_of("1,2,3\n"));
  expect_in("b.csv', line 1: found 3 columns, expected 2 as in '", message());
  write_bytes(options.test_file, bytes_of("y,u\n1,2\n"));
  expect_in("b.csv', line 1: found the columns 'y, u', expected 'u, y'", message());
  options.file.clear();
  expect_in("data.name = csv needs the key data.file",
            message_of<ConfigError>([&] { open_dataset(options); }));
}

TEST_F(CsvDatasetTest, OtherSeparators) {
  const std::vector<std::int64_t> ids = {0};
  for (const char* text : {"u;v;y\n1;2;7\n3;4;8\n", "1\t2\t7\r\n3\t4\t8\r\n5\t6\t7\r\n",
                           "\"a;b\",v,y\n1,2,7\n3,4,8\n", "\"a;b\";v;y\n1;2;7\n3;4;8\n"}) {
    write(text);
    EXPECT_EQ(row_of(open_dataset(options)->read(ids), 0), (std::vector<double>{1, 2})) << text;
  }
  write("size;cm,v,y\n1,2,7\n3,4,8\n");
  expect_in("line 2: found 1 column, expected 2 as in the first row",
            message_of<DataError>([&] { open_dataset(options); }));
  options.separator = Separator::Comma;
  EXPECT_EQ(open_dataset(options)->num_train(), 2);
  options.separator = Separator::Auto;
  write("1,5;2;7\n3,5;4;8\n");
  options.header = Header::No;
  expect_in("line 1, column 0: found '1,5', expected a finite number with a point, not a comma",
            message_of<DataError>([&] { open_dataset(options); }));
}

TEST_F(CsvDatasetTest, LabelsAndClientsMayBeWords) {
  write("who;x;kind\nbob;1;dog\nann;2;cat \nbob;3;cat\n");
  options.test_file = folder.path("b.csv");
  write_bytes(options.test_file, bytes_of("who,x,kind\neve,4,eel\n"));
  options.client_column = "who";
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"cat", "dog", "eel"}));
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{1, 0, 0, 2}));
  EXPECT_EQ(data->client_names(), (std::vector<std::string>{"ann", "bob", "eve"}));
  EXPECT_EQ(data->natural_clients(), (std::vector<std::int64_t>{1, 0, 1, 2}));
  options.partition = "natural";
  options.clients = 3;
  EXPECT_EQ(make_partition(options, *data).clients(), 3);

  options.test_file.clear();
  options.client_column = "0";
  write("40;1;7\n-2;2;8\n40;3;7\n");
  EXPECT_EQ(open_dataset(options)->natural_clients(), (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(open_dataset(options)->client_names(), (std::vector<std::string>{"-2", "40"}));
  options.client_column = "last";
  expect_in("data.label_column = last and data.client_column = last are the same column",
            message_of<ConfigError>([&] { open_dataset(options); }));
  options.client_column = "who";
  expect_in("key 'data.client_column' cannot be 'who'; allowed: last, a number from 0 to 2",
            message_of<ConfigError>([&] { open_dataset(options); }));
}

TEST_F(CsvDatasetTest, WordsWithoutAHeader) {
  write("1,cat\n2,dog\n3,cat\n");
  EXPECT_EQ(open_dataset(options)->num_train(), 3);
  write("1,kind\n2,0\n3,1\n");  // a word above numbers
  EXPECT_EQ(open_dataset(options)->num_train(), 2);
  write("1,kind\n2,cat\n3,dog\n");
  expect_in("line 1: the label 'kind' is in no other row; set data.header = yes if",
            message_of<DataError>([&] { open_dataset(options); }));
  options.header = Header::Yes;
  EXPECT_EQ(open_dataset(options)->class_names(), (std::vector<std::string>{"cat", "dog"}));
  options.header = Header::No;
  EXPECT_EQ(open_dataset(options)->classes(), 3);
}

TEST_F(CsvDatasetTest, NumbersThatMayBeNames) {
  const auto message = [&] { return message_of<DataError>([&] { open_dataset(options); }); };
  const std::string both = "; set data.header = yes if the row names the columns, else ";
  write("0,1,2\n.5,6,2\n.25,8,2\n7,8,3\n");
  expect_in("a.csv', line 1: the numbers 0 to 2 may be data or names" + both, message());
  options.label_kind = LabelKind::Number;
  expect_in("line 1: the numbers 0 to 2 may be data or names" + both, message());
  options.header = Header::No;
  EXPECT_EQ(open_dataset(options)->num_train(), 4);
  options.header = Header::Yes;
  EXPECT_EQ(open_dataset(options)->num_train(), 3);
  options.label_kind = LabelKind::Class;
  EXPECT_EQ(open_dataset(options)->class_names(), (std::vector<std::string>{"2", "3"}));

  options.header = Header::Auto;
  write("4,5,784\n.5,6,2\n7,8,3\n");
  expect_in("a.csv', line 1: the label 784 is in no other row" + both, message());
  options.label_kind = LabelKind::Number;
  EXPECT_EQ(open_dataset(options)->num_train(), 3);
  options.label_kind = LabelKind::Class;
  options.header = Header::No;
  EXPECT_EQ(open_dataset(options)->classes(), 3);
  options.header = Header::Auto;
  for (const char* text : {"0,1,3\n5,6,3\n7,8,2\n", "0.0,1,2\n5,6,2\n7,8,3\n"}) {
    write(text);
    EXPECT_EQ(open_dataset(options)->num_train(), 3) << text;
  }
}

TEST_F(CsvDatasetTest, NumbersAndWordsDoNotMix) {
  const auto message = [&](const std::string& text) {
    write(text);
    return message_of<DataError>([&] { open_dataset(options); });
  };
  expect_in("line 4, column 1: found 'two', expected a finite number",
            message("x,y\n0,1\n1,3\n1,two\n"));
  expect_in("line 3, column 1: found the number '2', expected a word as in line 2",
            message("x,y\n1,two\n0,2\n"));
  expect_in("line 3, column 1: found '1e999', expected a finite number",
            message("x,y\n1,0\n0,1e999\n"));
  expect_in("line 3, column 1: found the number '1e999', expected a word as in line 2",
            message("x,y\n1,two\n0,1e999\n"));
  expect_in("line 3, column 1: found 'Jos?', which is not UTF-8; save the file in that encoding",
            message("x,y\n1,two\n0,Jos\xe9\n"));
  expect_in("line 3, column 1: found ' ', expected", message("x,y\n1,two\n0, \n"));
  expect_in("line 2, column 1: found 'nan', expected", message("x,y\n1,nan\n"));
  write("x,y\n1,two\n0,one\n");
  options.test_file = folder.path("b.csv");
  write_bytes(options.test_file, bytes_of("1,2\n"));
  expect_in("b.csv', column 1: found numbers, expected words as in '",
            message_of<DataError>([&] { open_dataset(options); }));
}

std::string covtype_row(int first, const std::string& label) {
  std::string row = std::to_string(first);
  for (int i = 1; i < 54; ++i) row += "," + std::to_string(i);
  return row + "," + label + "\n";
}

TEST(CovtypeTest, LabelsAre1To7) {
  const TemporaryFolder folder;
  DataOptions options;
  options.name = "covtype";
  options.dir = folder.path();
  append_gzip(folder.path("covtype.data.gz"),
              bytes_of(covtype_row(2596, "5") + covtype_row(-3, "1")));
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{54}));
  EXPECT_EQ(data->classes(), 7);
  EXPECT_EQ(data->num_train(), 2);
  EXPECT_EQ(data->num_test(), 0);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{4, 0}));
  const std::vector<std::int64_t> ids = {1};
  const std::vector<double> row = row_of(data->read(ids), 0);
  EXPECT_EQ(row.front(), -3);
  EXPECT_EQ(row.back(), 53);

  const auto message = [&](const std::string& text) {
    write_bytes(folder.path("covtype.data"), bytes_of(text));
    return message_of<DataError>([&] { open_dataset(options); });
  };
  expect_in("line 2, column 54: found label 8, expected 1 to 7",
            message(covtype_row(1, "7") + covtype_row(1, "8")));
  expect_in("line 1, column 54: found label 'x', expected", message(covtype_row(1, "x")));
  expect_in("line 1, column 54: found label 1.5", message(covtype_row(1, "1.5")));
  expect_in("line 1: found 2 columns, expected 54 features and the label", message("1,2\n"));
}

TEST_F(CsvDatasetTest, AColumnOfTwoNames) {
  write("a,x,x\n1,2,0\n3,4,1\n");
  for (const std::string column : {"x", "last"}) {
    options.label_column = column;
    expect_in("2 columns of " + options.file + " are called 'x'",
              message_of<ConfigError>([&] { open_dataset(options); }));
  }
  options.label_column = "2";
  EXPECT_EQ(open_dataset(options)->shape(), (std::vector<std::int64_t>{2}));
}

TEST_F(CsvDatasetTest, NumbersOfARegressionAreNoClasses) {
  std::string text = "a,y\n";
  for (int i = 0; i < 30; ++i) text += concat(i, ",", i < 20 ? i : 20, "\n");
  write(text);
  options.label_column = "y";
  expect_in("20 of 30 samples have a label that no other one has; set data.label_kind = number",
            message_of<DataError>([&] { open_dataset(options); }));
  options.label_kind = LabelKind::Number;
  EXPECT_EQ(open_dataset(options)->targets().kind, Targets::Kind::Numbers);

  options.label_kind = LabelKind::Auto;
  text = "a,y\n";
  for (int i = 0; i < 30; ++i) text += concat(i, ",name", i, "\n");
  write(text);
  EXPECT_EQ(open_dataset(options)->classes(), 30) << "words are no numbers";
}

TEST_F(CsvDatasetTest, TheDigestIsOfFeaturesLabelsAndShape) {
  options.header = Header::No;
  const auto digest_of_text = [&](const std::string& text) {
    write(text);
    return digest_of(*open_dataset(options));
  };
  const std::string first = digest_of_text("1,2,0\n3,4,1\n5,6,1\n");
  EXPECT_EQ(digest_of_text("1.0,2,0\n3,4,1\n5,6,1\n"), first);
  for (const char* other :
       {"1,2,0\n3,4,0\n5,6,1\n", "1,2,0\n3,5,1\n5,6,1\n", "1,0\n3,1\n5,1\n", "1,2,0\n3,4,1\n"}) {
    EXPECT_NE(digest_of_text(other), first) << other;
  }
  // Of many samples all labels and numbers count, and how many are for training.
  const auto many = [](int at, const char* row) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += i == at ? row : concat(i, ",", i % 7, "\n");
    return text;
  };
  const std::string label = digest_of_text(many(-1, ""));
  EXPECT_NE(digest_of_text(many(101, "101,5\n")), label);
  options.label_kind = LabelKind::Number;
  const std::string number = digest_of_text(many(-1, ""));
  EXPECT_NE(digest_of_text(many(101, "101,5\n")), number);
  EXPECT_NE(number, label);
  options.test_file = options.file + ".test";
  write_bytes(options.test_file, bytes_of("199,3\n"));
  std::string fewer = many(199, "");
  EXPECT_NE(digest_of_text(fewer), number) << "of the same samples";
}

}  // namespace
}  // namespace fedhpc
