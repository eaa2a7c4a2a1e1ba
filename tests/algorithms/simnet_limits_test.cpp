#include <string>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/recorder.hpp"
#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/io/seal.hpp"

#include "fixtures/resumed_run.hpp"
#include "fixtures/simnet_case.hpp"

// Where the similarity-network method comes down to simpler ones, and what a run depends on.
namespace fedhpc::testing {
namespace {

std::vector<Keys> settings() {
  return {
      {},
      {{"run.dtype", "float32"}, {"topology.participation", "0.4"}, {"run.rounds", "5"}},
      {{"train.local_steps", "5"}, {"train.block", "4"}},
      with_batch_norm(
          {{"train.local_epochs", "0"}, {"topology.participation", "0.6"}, {"train.block", "3"}})};
}

TEST(SimNet, WithNothingPersonalItIsDsgdBitForBit) {
  const auto world = world_communicator(60);
  for (const Keys& setting : settings()) {
    Keys plain = with_simnet(setting);
    std::erase_if(plain, [](const auto& entry) { return entry.first.starts_with("algorithm."); });
    plain["algorithm.name"] = "dsgd";
    plain["topology.placement"] = "home";  // as participants of simnet are, whose sums these are
    const TinyResult dsgd = run(plain, *world);
    for (const std::string shared : {"rest", "all"}) {
      Keys keys = with_simnet(setting);
      keys["algorithm.personal"] = "none";
      keys["algorithm.shared"] = shared;
      const TinyResult simnet = run(keys, *world);
      EXPECT_TRUE(simnet.personal.equal(dsgd.global.repeat({7})));
      if (world->rank() != 0) continue;
      for (std::size_t t = 0; t < dsgd.metrics.size(); ++t) {
        EXPECT_EQ(simnet.metrics[t].train_loss, dsgd.metrics[t].train_loss);
        EXPECT_EQ(bytes_up(simnet.metrics[t]), bytes_up(dsgd.metrics[t]));
        EXPECT_EQ(bytes_down(simnet.metrics[t]), bytes_down(dsgd.metrics[t]));
      }
    }
  }
}

TEST(SimNet, WithNothingSharedAndNoNetworkItIsLocalOnly) {
  const auto world = world_communicator(60);
  // Of the rate 0.6 every one of six clients has a sixth: train.lr.
  for (const std::string steps : {"1", "4"}) {
    Keys keys = with_simnet({{"algorithm.personal", "all"},
                             {"algorithm.lambda", "0"},
                             {"train.local_steps", steps},
                             {"run.rounds", "6"}});
    const TinyResult simnet = run(keys, *world);
    std::erase_if(keys, [](const auto& entry) { return entry.first.starts_with("algorithm."); });
    keys["algorithm.name"] = "localonly";
    const TinyResult localonly = run(keys, *world);
    EXPECT_GT(distance(localonly.personal, localonly.initial), 1e-2);
    EXPECT_LT(distance(simnet.personal, localonly.personal), 1e-12);
  }
}

TEST(SimNet, AStrongNetworkMakesClientsEqual) {
  const auto world = world_communicator(60);
  for (const std::string p : {"1", "2", "infinity"}) {
    Keys keys = with_simnet({{"algorithm.personal", "all"},
                             {"algorithm.p", p},
                             {"algorithm.lambda", "1000"},
                             {"algorithm.neighbours", "6"},
                             {"algorithm.admm_steps", "3000"},
                             {"algorithm.admm_tolerance", "1e-13"},
                             {"run.rounds", "6"}});
    const Tensor models = run(keys, *world).personal.reshape({7, -1});
    // The mean of steps of rate 0.6 / 6, as if there were one model.
    std::erase_if(keys, [](const auto& entry) { return entry.first.starts_with("algorithm."); });
    keys["algorithm.name"] = "dsgd";
    const TinyResult dsgd = run(keys, *world);
    for (std::int64_t k = 0; k < 7; ++k) {
      if (k == 3) continue;  // without samples and neighbours
      EXPECT_LT(distance(models[k], models[0]), 1e-8) << "client " << k << ", p = " << p;
      EXPECT_LT(distance(models[k], dsgd.global), 1e-8) << "client " << k << ", p = " << p;
    }
    EXPECT_TRUE(models[3].equal(dsgd.initial));
  }
}

TEST(SimNet, AStrongerNetworkDrawsClientsNearer) {
  const auto world = world_communicator(60);
  double before = 0;
  for (const std::string lambda : {"0.02", "0.005", "0"}) {
    const Tensor models =
        run(with_simnet({{"algorithm.lambda", lambda}, {"run.rounds", "8"}}), *world)
            .personal.reshape({7, -1});
    const double spread = (models - models.mean(0, /*keepdim=*/true)).norm().item<double>();
    EXPECT_GT(spread, 1.05 * before) << lambda;
    before = spread;
  }
}

TEST(SimNet, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  const auto world = world_communicator(60);
  for (const Keys& changes :
       std::vector<Keys>{{{"algorithm.p", "1"}, {"algorithm.gamma", "0.01"}},
                         {{"algorithm.p", "infinity"}, {"algorithm.personal", "all"}},
                         {{"algorithm.graph", "feature"}, {"run.dtype", "float32"}},
                         with_batch_norm({{"algorithm.graph", "model"},
                                          {"algorithm.graph_passes", "2"},
                                          {"algorithm.personal", "body"},
                                          {"algorithm.shared", "all"},
                                          {"train.local_epochs", "0"}}),
                         with_batch_norm({{"algorithm.kernel", "fourier"},
                                          {"algorithm.edge_weights", "gaussian"},
                                          {"run.dtype", "float32"},
                                          {"algorithm.codec", "kmeans"},
                                          {"train.local_epochs", "0"}})}) {
    Keys keys = with_simnet(changes);
    keys["run.reproducible"] = "true";
    keys["topology.participation"] = "0.8";
    const TinyResult expected = run(keys, *local_communicator());
    const auto [edges, weights] = graph_of(keys, *local_communicator());
    for (const std::string width : {"1", "3", "8"}) {
      keys["train.block"] = width;
      expect_same_bits(run(keys, *world), expected, *world);
      const auto [same_edges, same_weights] = graph_of(keys, *world);
      EXPECT_TRUE(same_edges.equal(edges));
      EXPECT_TRUE(same_weights.equal(weights));
    }
  }
}

TEST(SimNet, Resumes) {
  for (const Keys& changes :
       std::vector<Keys>{{{"algorithm.graph", "model"}, {"algorithm.edge_weights", "gaussian"}},
                         {{"algorithm.shared", "all"},
                          {"algorithm.personal", "all"},
                          {"algorithm.gamma", "0.05"},
                          {"algorithm.gamma_schedule", "inverse"}}}) {
    Keys keys = with_simnet(changes);
    keys["topology.participation"] = "0.5";
    keys["run.rounds"] = "6";
    expect_goes_on(keys, {3});
  }
}

// What a run goes on with is the network of its checkpoint, not one that it makes again.
TEST(SimNet, ARunThatGoesOnKeepsItsNetwork) {
  const auto world = world_communicator(60);
  const SharedFolder folder(*world);
  Keys keys = with_simnet({{"algorithm.edge_weights", "gaussian"}});
  keys["run.output"] = folder.file("run.h5");
  Tensor edges;
  Tensor weights;
  {
    Config config(assignments_of(keys), "tiny.ini");
    Experiment experiment(config, *world);
    std::tie(edges, weights) = graph_of(experiment);
    Recorder recorder(experiment, *world, "test", nullptr);
    Checkpointer checkpointer(experiment, *world, nullptr);
    experiment.run(
        [&](const RoundReport& report) {
          recorder.record(report);
          if (report.agreed.stop) checkpointer.write(report.round, recorder.file());
        },
        [](std::int64_t round) { return RoundRequest{.stop = round == 2}; });
  }
  const ResumePoint point = find_resume_point(folder.file("run.h5"), *world);
  const Tensor halves = weights / 2;
  ASSERT_FALSE(halves.equal(weights));
  if (world->rank() == 0) {
    {
      const h5::Handle file = h5::open_file(point.from.checkpoint, h5::Mode::ReadWrite);
      h5::write_all(h5::open_dataset(file, "/state/graph_weights"), h5::type_of<double>(),
                    halves.data_ptr());
    }
    seal(point.from.checkpoint);
  }
  world->barrier();
  const auto config = resumed_configuration(point, {});
  Experiment experiment(*config, *world, &point.from);
  const auto [same_edges, kept_weights] = graph_of(experiment);
  EXPECT_TRUE(same_edges.equal(edges));
  EXPECT_TRUE(kept_weights.equal(halves));
}

}  // namespace
}  // namespace fedhpc::testing
