// What a data set of a plug-in gives has to be what it says.

#include <cmath>
#include <functional>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

using Ids = std::vector<std::int64_t>;

/// What a data set says and gives; by default 12 samples of 3 classes.
struct Told {
  Ids shape{5};
  std::int64_t classes = 3;
  Ids natural{};
  std::vector<std::string> names{};
  Targets targets{};
  std::function<void(Ids&)> change_labels = [](Ids&) {};
  std::function<void(Samples&)> change_samples = [](Samples&) {};
};

class ToldDataset final : public Dataset {
 public:
  explicit ToldDataset(Told told) : told_(std::move(told)) {}
  Ids shape() const override { return told_.shape; }
  std::int64_t classes() const override { return told_.classes; }
  std::int64_t num_train() const override { return data_.num_train(); }
  std::int64_t num_test() const override { return data_.num_test(); }
  Targets targets() const override { return told_.targets; }
  Ids natural_clients() const override { return told_.natural; }
  std::vector<std::string> class_names() const override { return told_.names; }
  Ids labels() const override {
    Ids labels = data_.labels();
    told_.change_labels(labels);
    return labels;
  }
  Samples read(std::span<const std::int64_t> ids) const override {
    Samples samples = data_.read(ids);
    told_.change_samples(samples);
    return samples;
  }

 private:
  Told told_;
  TableDataset data_ = balanced(3, 4);
};

std::unique_ptr<Dataset> opened(const Told& told) {
  dataset_registry().add("told", "a data set of this test", [told](const DataOptions&) {
    return std::make_unique<ToldDataset>(told);
  });
  DataOptions options;
  options.name = "told";
  return open_dataset(options);
}

/// What is refused of samples 4, 7 and 9, which `change` has changed.
std::string refused_samples(const std::function<void(Samples&)>& change, Targets targets = {}) {
  const auto data = opened({.targets = std::move(targets), .change_samples = change});
  return message_of<DataError>([&] { data->read(Ids{4, 7, 9}); });
}

std::int64_t& label(Samples& samples, std::int64_t row) {
  return samples.labels.data_ptr<std::int64_t>()[row];
}

TEST(CheckedDataset, GivesWhatIsRight) {
  const auto data = opened({.natural = Ids(12, 1), .names = {"a", "b", "c"}});
  const TableDataset same = balanced(3, 4);
  EXPECT_EQ(data->labels(), same.labels());
  EXPECT_TRUE(data->read(Ids{4, 4, 9}).features.equal(same.read(Ids{4, 4, 9}).features));
  EXPECT_EQ(data->read({}).labels.numel(), 0);
  EXPECT_EQ(data->natural_clients().size(), 12U);
}

TEST(CheckedDataset, LabelsAreOfTheClasses) {
  for (const std::int64_t wrong : {-1, 3, 1 << 30}) {
    const std::string end = concat(" has the label ", wrong, ", expected 0 to 2");
    EXPECT_EQ(refused_samples([&](Samples& samples) { label(samples, 1) = wrong; }),
              "data set 'told': sample 7" + end);
    const auto data = opened({.change_labels = [&](Ids& labels) { labels[5] = wrong; }});
    EXPECT_EQ(message_of<DataError>([&] { data->labels(); }), "data set 'told': sample 5" + end);
  }
  const auto two = opened({.change_samples = [](Samples& samples) { label(samples, 2) ^= 1; }});
  two->labels();
  EXPECT_EQ(message_of<DataError>([&] {
              two->read(Ids{4, 7, 0});
            }),
            "data set 'told': sample 0 has the label 1 in read() and 0 in labels()");
  const auto few = opened({.change_labels = [](Ids& labels) { labels.pop_back(); }});
  EXPECT_EQ(message_of<DataError>([&] { few->labels(); }),
            "data set 'told': labels() gave 11 entries, expected 12");
}

TEST(CheckedDataset, SamplesHaveTheirSizesAndTypes) {
  EXPECT_EQ(
      refused_samples(
          [](Samples& samples) { samples.features = samples.features.narrow(0, 0, 2); }),
      "data set 'told': read() gave features Byte of sizes [2, 5], expected Byte or Double of "
      "sizes [3, 5]");
  EXPECT_EQ(refused_samples([](Samples& samples) { samples.labels = samples.labels.to(at::kInt); }),
            "data set 'told': read() gave labels Int of sizes [3], expected Long of sizes [3]");
  EXPECT_EQ(refused_samples([](Samples& samples) { samples.labels = Tensor(); }),
            "data set 'told': read() gave no labels, expected Long of sizes [3]");
  EXPECT_EQ(refused_samples([](Samples& samples) {
              samples.features = at::zeros({5, 3}, at::kDouble).t();
            }),
            "data set 'told': read() gave features that are not contiguous");
  EXPECT_EQ(refused_samples([](Samples& samples) { samples.targets = samples.labels; }),
            "data set 'told': read() gave targets, which targets() does not name");
}

TEST(CheckedDataset, WholeTargetsAreThoseItNames) {
  const Targets two{.kind = Targets::Kind::Whole, .count = 2, .values = {-100, 0, 1}};
  for (const std::int64_t right : {-100, 1}) {
    const auto data = opened({.targets = two, .change_samples = [=](Samples& samples) {
                                samples.targets = at::full({1, 2}, right, at::kLong);
                              }});
    EXPECT_EQ(data->read(Ids{4}).targets.numel(), 2);
  }
  for (const std::int64_t wrong : {-101, -50, 2}) {
    EXPECT_EQ(refused_samples(
                  [&](Samples& samples) {
                    samples.targets = at::zeros({3, 2}, at::kLong);
                    samples.targets.data_ptr<std::int64_t>()[3] = wrong;
                  },
                  two),
              concat("data set 'told': sample 7 has the target ", wrong,
                     " at place 1, expected one of the values that targets() names"));
  }
  const Targets numbers{.kind = Targets::Kind::Numbers, .count = 2};
  EXPECT_EQ(refused_samples([](Samples&) {}, numbers),
            "data set 'told': read() gave no targets, expected Double of sizes [3, 2]");
  EXPECT_EQ(message_of<DataError>([] { opened({.targets = {.kind = Targets::Kind::Whole}}); }),
            "data set 'told': targets() gave whole numbers with no values, expected those that "
            "occur, ascending");
}

TEST(CheckedDataset, NumbersAreFinite) {
  const Targets numbers{.kind = Targets::Kind::Numbers, .count = 2};
  for (const double wrong : {std::nan(""), -HUGE_VAL}) {
    const std::string end = concat(wrong, " at place 1, expected a finite number");
    const Tensor one_wrong = at::zeros({3, 5}, at::kDouble);
    one_wrong.data_ptr<double>()[6] = wrong;
    EXPECT_EQ(refused_samples([&](Samples& samples) { samples.features = one_wrong; }),
              "data set 'told': sample 7 has the feature " + end);
    const Tensor wrong_target = one_wrong.narrow(1, 0, 2).contiguous();
    EXPECT_EQ(refused_samples([&](Samples& samples) { samples.targets = wrong_target; }, numbers),
              "data set 'told': sample 7 has the target " + end);
  }
}

TEST(CheckedDataset, DescribesItself) {
  const auto refused = [](const Told& told) {
    return message_of<DataError>([&] { opened(told)->natural_clients(); });
  };
  EXPECT_EQ(refused({.shape = {}}),
            "data set 'told': shape() gave [], expected sizes of 1 or more");
  EXPECT_EQ(refused({.shape = {5, 0}}),
            "data set 'told': shape() gave [5, 0], expected sizes of 1 or more");
  EXPECT_EQ(refused({.classes = 0}), "data set 'told': classes() gave 0, expected 1 or more");
  EXPECT_EQ(refused({.natural = {1, 2}}),
            "data set 'told': natural_clients() gave 2 entries, expected 12");
  EXPECT_EQ(refused({.natural = Ids(12, -1)}),
            "data set 'told': sample 0 is of the natural client -1, expected 0 or above");
  EXPECT_EQ(refused({.names = {"a"}}), "data set 'told': class_names() gave 1 entries, expected 3");
}

}  // namespace
}  // namespace fedhpc
