// CSV files that could be read in two ways, or in one that loses something, are refused.

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

class DoubtfulCsvTest : public ::testing::Test {
 protected:
  DoubtfulCsvTest() {
    options.name = "csv";
    options.file = folder.path("a.csv");
  }
  void write(const std::string& text) {
    write_bytes(options.file, Bytes(text.begin(), text.end()));
  }
  void write_test(const std::string& text) {
    options.test_file = folder.path("b.csv");
    write_bytes(options.test_file, Bytes(text.begin(), text.end()));
  }
  std::string message() {
    return message_of<DataError>([&] { open_dataset(options); });
  }
  std::string message(const std::string& text) {
    write(text);
    return message();
  }

  TemporaryFolder folder;
  DataOptions options;
};

TEST_F(DoubtfulCsvTest, ClientsThatWouldMerge) {
  options.client_column = "who";
  const std::string first = "who,x,y\n7,1,0\n";
  for (const std::string id : {"1234567890123456789", "9007199254740993", "-9007199254740993",
                               "9007199254740992", "1e30"}) {
    expect_in("a.csv', line 3, column 0: found '" + id +
                  "', expected a number below 2^53, from which on numbers merge; write words in "
                  "this column, such as 'u" +
                  id + "'",
              message(first + id + ",2,1\n"));
  }
  write("who,x,y\nu1234567890123456789,1,0\nu1234567890123456790,2,1\n");
  EXPECT_EQ(open_dataset(options)->client_names().size(), 2U);
  write(first + "9007199254740991,2,1\n9007199254740990,2,1\n");
  EXPECT_EQ(open_dataset(options)->natural_clients(), (std::vector<std::int64_t>{0, 2, 1}));
  write_test(first + "9007199254740993,2,1\n");
  expect_in("b.csv', line 3, column 0: found '9007199254740993', expected", message());
}

TEST_F(DoubtfulCsvTest, ClassesThatWouldMerge) {
  const std::string text = "x,y\n1,1234567890123456789\n2,1234567890123456790\n3,5\n";
  expect_in("a.csv', line 2, column 1: found '1234567890123456789', expected a number below 2^53",
            message(text));
  options.label_kind = LabelKind::Class;
  expect_in("a.csv', line 2, column 1: found '1234567890123456789', expected", message());
  options.label_kind = LabelKind::Number;
  EXPECT_EQ(open_dataset(options)->num_train(), 3) << "a regression's numbers may be rounded";
  write("x,y\n1234567890123456789,1\n2,2\n");
  options.label_kind = LabelKind::Auto;
  EXPECT_EQ(open_dataset(options)->num_train(), 2) << "features may be rounded";
}

TEST_F(DoubtfulCsvTest, ClassesOfLibsvmThatWouldMerge) {
  options.name = "libsvm";
  expect_in("a.csv': found the label 9007199254740992, expected classes below 2^53",
            message("1 1:2\n9007199254740993 1:3\n9007199254740992 1:4\n"));
  options.label_kind = LabelKind::Number;
  EXPECT_EQ(open_dataset(options)->num_train(), 3);
}

TEST_F(DoubtfulCsvTest, AFirstSampleWithAMissingNumber) {
  for (const std::string missing : {"", "NA", "?"}) {
    const std::string row = "5.1," + missing + ",1.4,0.2,0\n";
    write(row + "4.9,3,1.4,0.2,1\n4.7,3.2,1.3,0.2,0\n5,3,1.5,.2,1\n");
    options.header = Header::Auto;
    expect_in("a.csv', line 1, column 1: found '" + missing +
                  "' in a first row with 4 numbers; set data.header = yes if the row names",
              message());
    options.header = Header::No;
    expect_in("line 1, column 1: found '" + missing + "', expected a finite number", message());
    options.header = Header::Yes;
    EXPECT_EQ(open_dataset(options)->num_train(), 3);
  }
  options.header = Header::Auto;
  expect_in("column 1: found '' in a first row with 1 number; set", message("5.1,,cat\n4,3,dog\n"));
  write("2019,age,size,y\n1,2,3,0\n4,5,6,1\n");
  EXPECT_EQ(open_dataset(options)->num_train(), 2) << "more names than numbers";
}

TEST_F(DoubtfulCsvTest, NamesInTheTestFileAlone) {
  write("1,2,0\n3,4,1\n5,6,0\n7,8,1\n");
  for (const std::string names : {"u,v,y", "1,2,kind"}) {
    write_test(names + "\n5,6,1\n");
    std::string listed = names;
    for (std::size_t at = 0; (at = listed.find(',', at)) != std::string::npos; at += 2) {
      listed.replace(at, 1, ", ");
    }
    expect_in("b.csv', line 1: found the names of columns '" + listed +
                  "', expected a row of data, as '" + options.file + "' begins with; set",
              message());
  }
  write_test("5,NA,1\n5,6,1\n");
  expect_in("b.csv', line 1, column 1: found 'NA', expected a finite number", message());
  write("u,v,y\n1,2,0\n3,4,1\n");
  expect_in("b.csv', line 1, column 1: found 'NA', expected a finite number", message());
}

TEST_F(DoubtfulCsvTest, RowNumbersWithoutAName) {
  for (const std::string text :
       {",x,y\n0,5,7\n1,6,8\n2,5,7\n", "\"\",x,y\n1,5,7\n2,6,8\n3,5,7\n", ",x,y\n7,5,7\n3,6,8\n",
        "Unnamed: 0,x,y\n0,5,7\n1,6,8\n", "Unnamed: 0.1,x,y\n9,5,7\n2,6,8\n4,5,7\n"}) {
    expect_in(
        "a.csv', column 0: it has no name and counts the rows, as pandas writes its index; "
        "write the file with index=False",
        message(text));
  }
  for (const std::string text :
       {"i,x,y\n0,5,7\n1,6,8\n", ",x,y\n2,5,7\n2,6,8\n", ",x,y\n0.5,5,7\n3,6,8\n",
        ",x,y\n-1,5,7\n3,6,8\n", "Unnamed,x,y\n0,5,7\n1,6,8\n"}) {
    write(text);
    EXPECT_EQ(open_dataset(options)->shape(), (std::vector<std::int64_t>{2})) << text;
  }
  write(",x,y\n0,5,7\n1,6,8\n");
  options.client_column = "0";
  EXPECT_EQ(open_dataset(options)->shape(), (std::vector<std::int64_t>{1})) << "a client's number";
}

}  // namespace
}  // namespace fedhpc
