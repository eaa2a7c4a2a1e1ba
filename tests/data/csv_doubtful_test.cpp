// CSV files that could be read in two ways, or in one that loses something, are refused.

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

using testing_support::Bytes;
using testing_support::expect_in;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_bytes;

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
                  "', expected a number within 2^53, beyond which numbers merge; write words in "
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
  expect_in("a.csv', line 2, column 1: found '1234567890123456789', expected a number within 2^53",
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
  expect_in("a.csv': found the label 9007199254740992, expected classes within 2^53",
            message("1 1:2\n9007199254740993 1:3\n9007199254740992 1:4\n"));
  options.label_kind = LabelKind::Number;
  EXPECT_EQ(open_dataset(options)->num_train(), 3);
}

}  // namespace
}  // namespace fedhpc
