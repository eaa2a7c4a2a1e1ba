#include <algorithm>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/data/options.hpp"
#include "fedhpc/data/partition.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// How many entries are fedhpc's own: other tests add some.
template <typename Registry>
std::ptrdiff_t of_the_table(const Registry& registry) {
  return std::ranges::count_if(registry, [](const auto& entry) { return !entry.added; });
}

TEST(DataOptionsTest, EveryNameOfTheRegistriesIsAllowed) {
  DataOptions data;
  OptionSet options;
  data.declare(options);
  const Origin origin{Level::File, "x.ini:1"};
  for (const auto& [name, sentence] : dataset_registry().listing()) {
    options.assign("data.name", name, origin);
    EXPECT_EQ(data.name, name);
    EXPECT_FALSE(sentence.empty());
  }
  EXPECT_EQ(of_the_table(dataset_registry()), 14);
  for (const std::string& name : partitioner_registry().names()) {
    options.assign("data.partition", name, origin);
    EXPECT_EQ(options.entry("data.partition").print(), name);
  }
  EXPECT_EQ(of_the_table(partitioner_registry()), 7);
}

TEST(DataOptionsTest, RangesAreKept) {
  DataOptions data;
  OptionSet options;
  data.declare(options);
  const std::vector<std::pair<std::string, std::string>> bad = {{"data.clients", "0"},
                                                                {"data.alpha", "0"},
                                                                {"data.alpha", "1e308"},
                                                                {"data.train_fraction", "0"},
                                                                {"data.train_fraction", "1.1"},
                                                                {"data.train_per_class", "-1"},
                                                                {"data.labels_per_client", "0"},
                                                                {"data.classes", "1"},
                                                                {"data.name", "imagenet"},
                                                                {"data.partition", "shard"},
                                                                {"data.split", "server"},
                                                                {"data.standardize", "mean"},
                                                                {"data.labels_rule", "first"},
                                                                {"data.synthetic_alpha", "-1"},
                                                                {"data.synthetic_clusters", "-1"},
                                                                {"data.seed", "-1"},
                                                                {"data.samples_per_client", "0"},
                                                                {"data.shards_per_client", "0"},
                                                                {"data.pfedme_seed", "4294967296"},
                                                                {"data.augment", "crop"}};
  for (const auto& [key, text] : bad) {
    const std::string message = message_of<ConfigError>([&] {
      options.assign(key, text, {Level::File, "x.ini:1"});
    });
    expect_in("key '" + key + "' cannot be '" + text + "'; allowed: ", message);
  }
  options.assign("data.train_fraction", "1", {Level::File, "x.ini:1"});
  EXPECT_EQ(data.train_fraction, 1.0);
}

TEST(DataOptionsTest, AllKeysStandUnderDataAndExplainThemselves) {
  DataOptions data;
  OptionSet options;
  data.declare(options);
  EXPECT_GE(options.entries().size(), 20U);
  for (const OptionSet::Entry& entry : options.entries()) {
    EXPECT_TRUE(entry.key.starts_with("data.")) << entry.key;
    EXPECT_GT(entry.help.size(), 10U) << entry.key;
  }
}

TEST(DataOptionsTest, KeysFillTheFieldsOfTheirNames) {
  DataOptions data;
  OptionSet options;
  data.declare(options);
  const Origin origin{Level::File, "x.ini:1"};
  options.assign("data.own_words", "0.25", origin);
  EXPECT_EQ(data.own_words, 0.25);
  options.assign("data.label_column", "kind", origin);
  EXPECT_EQ(data.label_column, "kind");
  options.assign("data.pfedme_seed", "7", origin);
  EXPECT_EQ(data.pfedme_seed, 7);
}

TEST(DataOptionsTest, TheSeparatorOfAFileMayBeSaid) {
  const testing_support::TemporaryFolder folder;
  const auto features = [&](const std::string& separator, const std::string& text) {
    const std::string path = folder.path("a.csv");
    testing_support::write_bytes(path, {text.begin(), text.end()});
    DataOptions data;
    OptionSet options;
    data.declare(options);
    for (const auto& [key, value] : {std::pair("data.name", std::string("csv")),
                                     {"data.file", path},
                                     {"data.separator", separator},
                                     {"data.header", "yes"}}) {
      options.assign(key, value, {Level::File, "x.ini:1"});
    }
    return open_dataset(data)->shape().front();
  };
  // By itself the first row says semicolon, a comma where it has none.
  const std::string tabs = "u;cm\tv;cm\ty\n1\t2\t7\n3\t4\t8\n";
  const std::string semicolons = "u;v,w;x,y\n1;2;7\n3;4;8\n";
  EXPECT_EQ(features("tab", tabs), 2);
  EXPECT_EQ(features("semicolon", semicolons), 2);
  expect_in("line 2: found ", message_of<DataError>([&] { features("comma", semicolons); }));
  expect_in("line 2: found ", message_of<DataError>([&] { features("auto", tabs); }));
  expect_in("line 2: found ",
            message_of<DataError>([&] { features("tab", "u\tv\ty\n1;2;7\n3;4;8\n"); }));
  expect_in("line 2: found ",
            message_of<DataError>([&] { features("semicolon", "u;v;y\n1\t2\t7\n3\t4\t8\n"); }));
}

TEST(DataOptionsTest, AnUnknownDataSetNamesTheKnownOnes) {
  DataOptions data;
  data.name = "imagenet";
  expect_in("allowed: one of: mnist, fmnist, cifar10, ",
            message_of<ConfigError>([&] { open_dataset(data); }));
}

}  // namespace
}  // namespace fedhpc
