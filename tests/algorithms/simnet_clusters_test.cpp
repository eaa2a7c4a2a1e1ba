#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "fixtures/resumed_run.hpp"
#include "fixtures/simnet_case.hpp"

// What the similarity network is for: clients that are alike in groups nobody tells of.
namespace fedhpc::testing {
namespace {

constexpr std::int64_t kClients = 30;
constexpr std::int64_t kClusters = 3;
constexpr std::int64_t kSamples = 50;  // of a client

/// Thirty clients with 50 samples each, by the same law in each of three groups.
Keys planted(Keys changes) {
  changes.insert({{"run.seed", "11"},
                  {"run.rounds", "150"},
                  {"run.eval_every", "150"},
                  {"data.name", "synthetic"},
                  {"data.partition", "natural"},
                  {"data.clients", std::to_string(kClients)},
                  {"data.samples_per_client", std::to_string(kSamples)},
                  {"data.synthetic_clusters", std::to_string(kClusters)},
                  {"data.features", "20"},
                  {"data.classes", "5"},
                  {"model.name", "mlr"},
                  {"train.batch_size", "10"},
                  {"train.local_epochs", "0"},
                  {"train.local_steps", "1"},
                  {"train.lr", "0.1"}});
  return changes;
}

double share_inside_clusters(const Keys& keys) {
  const auto [edges, weights] = graph_of(keys, *world_communicator(60));
  const Tensor cluster = edges.remainder(kClusters);
  return cluster.select(1, 0).eq(cluster.select(1, 1)).to(at::kDouble).mean().item<double>();
}

/// Images of 4 x 4 pixels whose clusters differ in what goes together with what, not in means: the
/// sign of a common factor in each pixel is the cluster's. Fills in where they are.
void plant_covariances(Keys& keys, const std::string& images, const std::string& partition_file) {
  constexpr std::int64_t kPixels = 16;
  std::array<std::array<double, kPixels>, kClusters> signs{};
  Draws of_clusters({.seed = 3, .purpose = Purpose::Generator});
  for (auto& cluster : signs) {
    for (double& sign : cluster) sign = of_clusters.below(2) == 0 ? -1 : 1;
  }
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  Partition partition;
  for (std::int64_t k = 0; k < kClients; ++k) {
    Draws draws({.seed = 3,
                 .purpose = Purpose::Generator,
                 .client = static_cast<std::uint64_t>(k),
                 .round = 1});
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const double factor = draws.normal();
      for (const double sign : signs[static_cast<std::size_t>(k % kClusters)]) {
        const double pixel = 128 + 25 * (sign * factor + draws.normal());
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(pixel, 0.0, 255.0)));
      }
      ids.push_back(std::ssize(labels));
      labels.push_back(draws.below(2));
    }
    partition.train.append(std::span(ids).first(kSamples - 10));
    partition.test.append(std::span(ids).last(10));
  }
  const h5::Handle file = h5::open_file(images, h5::Mode::Create);
  const h5::Handle values = h5::create_dataset(file, "x_train", h5::type_of<std::uint8_t>(),
                                               {static_cast<hsize_t>(labels.size()), 4, 4});
  h5::write_all(values, h5::type_of<std::uint8_t>(), pixels.data());
  h5::write_vector(file, "y_train", labels);
  write_partition(h5::open_file(partition_file, h5::Mode::Create), partition);
  keys["data.name"] = "hdf5";
  keys["data.file"] = images;
  keys["data.standardize"] = "half";
  keys["data.partition"] = "file";
  keys["data.partition_file"] = partition_file;
  keys.erase("data.synthetic_clusters");
}

TEST(SimNetClusters, EdgesAreInside) {
  for (const Keys& space :
       std::vector<Keys>{{{"algorithm.graph", "data"}},
                         {{"algorithm.graph", "data"}, {"algorithm.kernel", "fourier"}},
                         {{"algorithm.graph", "model"}, {"algorithm.graph_passes", "20"}}}) {
    Keys keys = planted(space);
    keys["algorithm.name"] = "simnet";
    EXPECT_GT(share_inside_clusters(keys), 0.95) << space.rbegin()->second;
  }
}

TEST(SimNetClusters, CovariancesTellClustersOfEqualMeansApart) {
  const auto world = world_communicator(60);
  const SharedFolder folder(*world);
  for (const std::string measure : {"frobenius", "log_euclidean"}) {
    Keys keys = planted({{"algorithm.name", "simnet"},
                         {"algorithm.graph", "feature"},
                         {"algorithm.covariance_distance", measure}});
    // The planted clusters of synthetic differ in means and labels alone.
    EXPECT_LT(share_inside_clusters(keys), 0.5) << measure;
    const std::string own = concat(measure, world->rank(), ".h5");
    plant_covariances(keys, folder.file("images_" + own), folder.file("partition_" + own));
    EXPECT_GT(share_inside_clusters(keys), 0.95) << measure;
  }
}

TEST(SimNetClusters, AlikeClientsLearnFromEachOther) {
  const auto world = world_communicator(60);
  if (world->size() > 1) GTEST_SKIP() << "a minute of training that does not depend on ranks";
  for (const std::string seed : {"5", "11"}) {
    const auto accuracy = [&](Keys changes) {
      changes["run.seed"] = seed;
      const TinyResult result = run(planted(changes), *world);
      return result.metrics.back().personal_accuracy;
    };
    std::vector<double> others{accuracy({{"algorithm.name", "localonly"}}),
                               accuracy({{"algorithm.name", "fedavg"}})};
    for (const std::string mu : {"0.03", "0.1", "0.3"}) {
      others.push_back(accuracy({{"algorithm.name", "ditto"}, {"algorithm.mu", mu}}));
    }
    const Keys simnet{{"algorithm.name", "simnet"},
                      {"algorithm.personal", "all"},
                      {"algorithm.personal_lr", "3"},  // of 30 clients: train.lr each
                      {"algorithm.lambda", "0.01"},
                      {"algorithm.admm_steps", "20"}};
    const double reached = accuracy(simnet);
    EXPECT_GT(reached, *std::max_element(others.begin(), others.end()) + 0.02) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fedhpc::testing
