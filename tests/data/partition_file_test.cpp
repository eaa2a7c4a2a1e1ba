#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "fedhpc/data/partition.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

using Ids = std::vector<std::int64_t>;

/// Three clients, the middle one without test samples, a list that is not ascending.
Partition sample() {
  Partition partition;
  partition.train.append(Ids{4, 0});
  partition.train.append(Ids{1});
  partition.train.append(Ids{2, 3});
  partition.test.append(Ids{5});
  partition.test.append({});
  partition.test.append(Ids{6, 7});
  partition.edge_of_client = {1, 0, 1};
  return partition;
}

void write(const std::string& path, const Partition& partition) {
  write_partition(h5::open_file(path, h5::Mode::Create), partition);
}

TEST(PartitionFileTest, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const Partition partition = sample();
  write(folder.path("root.h5"), partition);
  {
    const h5::Handle file = h5::open_file(folder.path("run.h5"), h5::Mode::Create);
    write_partition(h5::create_group(file, "partition"), partition);
  }
  for (const std::string name : {"root.h5", "run.h5"}) {
    const Partition copy = read_partition(folder.path(name), 8);
    EXPECT_EQ(copy.train.offsets, partition.train.offsets);
    EXPECT_EQ(copy.train.samples, partition.train.samples);
    EXPECT_EQ(copy.test.offsets, partition.test.offsets);
    EXPECT_EQ(copy.test.samples, partition.test.samples);
    EXPECT_EQ(copy.edge_of_client, partition.edge_of_client);
  }
}

TEST(PartitionFileTest, ValidationSamplesAreReadWhereTheyAre) {
  const TemporaryFolder folder;
  Partition partition = sample();
  const Partition none = partition;
  for (std::int64_t k = 0; k < partition.clients(); ++k) partition.validation.append(Ids{k});
  write(folder.path("p.h5"), partition);
  EXPECT_EQ(read_partition(folder.path("p.h5"), 8).validation.offsets,
            partition.validation.offsets);
  EXPECT_EQ(read_partition(folder.path("p.h5"), 8).validation.samples,
            partition.validation.samples);
  write(folder.path("none.h5"), none);
  EXPECT_EQ(read_partition(folder.path("none.h5"), 8).validation.size(), 0);
  partition.validation.append({});
  write(folder.path("more.h5"), partition);
  expect_in("'validation_offsets': found",
            message_of<DataError>([&] { read_partition(folder.path("more.h5"), 8); }));
}

TEST(PartitionFileTest, EdgesAndTestSamplesMayBeAbsent) {
  const TemporaryFolder folder;
  Partition partition;
  partition.train.append(Ids{0, 1});
  partition.test.append({});
  write(folder.path("p.h5"), partition);
  const Partition copy = read_partition(folder.path("p.h5"), 2);
  EXPECT_TRUE(copy.edge_of_client.empty());
  EXPECT_TRUE(copy.test.samples.empty());
  EXPECT_EQ(copy.clients(), 1);
}

TEST(PartitionFileTest, ErrorsNameFileAndDataSet) {
  struct Case {
    void (*spoil)(Partition&);
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](Partition& p) { p.train.offsets[0] = 1; },
       "data set 'train_offsets': found 1 as first entry, expected 0"},
      {[](Partition& p) { p.train.offsets[1] = 4; },
       "data set 'train_offsets': entry 2 falls to 3, expected ascending offsets"},
      {[](Partition& p) { p.test.samples.pop_back(); },
       "data set 'test_samples': found 2 samples, expected 3 as the last offset says"},
      {[](Partition& p) { p.train.samples[1] = 8; },
       "data set 'train_samples': found sample 8 at entry 1, expected 0 to 7"},
      {[](Partition& p) { p.test.samples[0] = -1; },
       "data set 'test_samples': found sample -1 at entry 0, expected 0 to 7"},
      {[](Partition& p) { p.test.append({}); },
       "data set 'test_offsets': found 4 clients, expected 3 as in train_offsets"},
      {[](Partition& p) { p.edge_of_client.pop_back(); },
       "data set 'edge_of_client': found 2 clients, expected 3"},
      {[](Partition& p) { p.edge_of_client[1] = -2; },
       "data set 'edge_of_client': found edge -2, expected 0 or above"},
      {[](Partition& p) { p.train = p.test = SampleLists{}; },
       "data set 'train_offsets': found no client, expected at least one"},
  };
  const TemporaryFolder folder;
  const std::string path = folder.path("p.h5");
  for (const Case& spoilt : cases) {
    Partition partition = sample();
    spoilt.spoil(partition);
    write(path, partition);
    expect_in("partition file '" + path + "', " + spoilt.message,
              message_of<DataError>([&] { read_partition(path, 8); }));
  }
}

/// A partition of two clients whose data set NAME holds `values` instead, as T; none: never written.
template <typename T>
void write_with(const std::string& path, const std::string& name, const std::vector<T>& values,
                bool written = true) {
  const h5::Handle file = h5::open_file(path, h5::Mode::Create);
  const std::map<std::string, Ids> sound = {{"train_offsets", {0, 1, 2}},
                                            {"train_samples", {2, 0}},
                                            {"test_offsets", {0, 0, 0}},
                                            {"test_samples", {}},
                                            {"edge_of_client", {1, 0}}};
  for (const auto& [one, numbers] : sound) {
    if (one != name) h5::write_vector(file, one, numbers);
  }
  if (written) {
    h5::write_vector(file, name, values);
  } else {
    h5::create_dataset(file, name, h5::type_of<T>(), {values.size()});
  }
}

TEST(PartitionFileTest, NumbersAreWholeAndWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path("p.h5");
  const auto message = [&] { return message_of<DataError>([&] { read_partition(path, 8); }); };
  for (const auto& [name, values] :
       std::map<std::string, std::vector<double>>{{"train_offsets", {0, 1.5, 2}},
                                                  {"train_samples", {2, .9}},
                                                  {"edge_of_client", {1, .5}}}) {
    write_with(path, name, values);
    expect_in("partition file '" + path + "', data set '" + name + "': found ", message());
    expect_in(" at entry 1, expected a whole number", message());
    write_with(path, name, values, false);
    expect_in("', data set '" + name + "': none of its numbers were written", message());
  }
  write_with(path, "train_samples", std::vector<double>{2, std::nan("")});
  expect_in("'train_samples': found nan at entry 1", message());
  write_with(path, "edge_of_client", Ids{0, std::int64_t{1} << 32});
  expect_in("'edge_of_client': found edge 4294967296, expected less than 2^31", message());
  // numpy makes floats of an empty list, and of whole numbers by arithmetic.
  write_with(path, "test_samples", std::vector<double>{});
  EXPECT_EQ(read_partition(path, 8).clients(), 2);
  write_with(path, "train_samples", std::vector<double>{2, 7});
  EXPECT_EQ(read_partition(path, 8).train.samples, (Ids{2, 7}));
}

TEST(PartitionFileTest, AFileThatIsNoneIsNamed) {
  const TemporaryFolder folder;
  const std::string missing = folder.path("missing.h5");
  expect_in("partition file '" + missing + "' cannot be read: there is no such file",
            message_of<DataError>([&] { read_partition(missing, 8); }));
  testing_support::write_bytes(folder.path("text.h5"), {'h', 'i'});
  expect_in("text.h5", message_of<DataError>([&] { read_partition(folder.path("text.h5"), 8); }));
  { const h5::Handle empty = h5::open_file(folder.path("empty.h5"), h5::Mode::Create); }
  expect_in("train_offsets",
            message_of<DataError>([&] { read_partition(folder.path("empty.h5"), 8); }));
}

TEST(PartitionFileTest, ReplacesTheNumberOfClients) {
  const TemporaryFolder folder;
  write(folder.path("p.h5"), sample());
  const TableDataset data = balanced(2, 5);  // 8 training and 2 test samples
  DataOptions options;
  options.partition = "file";
  options.partition_file = folder.path("p.h5");
  options.clients = 20;
  const Partition partition = make_partition(options, data);
  EXPECT_EQ(partition.clients(), 3);
  EXPECT_EQ(partition.train.samples, (Ids{4, 0, 1, 2, 3})) << "the order of the file is kept";
}

TEST(PartitionFileTest, TheOfficialSplitLeavesTheTestSetToTheServer) {
  const TemporaryFolder folder;
  const TableDataset data = balanced(2, 5);
  DataOptions options;
  options.partition = "file";
  options.partition_file = folder.path("p.h5");
  options.split = DataSplit::Official;
  write(folder.path("p.h5"), sample());
  expect_in("gives clients test samples",
            message_of<ConfigError>([&] { make_partition(options, data); }));
  Partition partition;
  partition.train.append(Ids{0, 8});
  partition.test.append({});
  write(folder.path("p.h5"), partition);
  expect_in("trains or validates on official test samples",
            message_of<ConfigError>([&] { make_partition(options, data); }));
  partition.train.samples = {0, 7};
  write(folder.path("p.h5"), partition);
  EXPECT_EQ(make_partition(options, data).train.samples, (Ids{0, 7}));
}

}  // namespace
}  // namespace fedhpc
