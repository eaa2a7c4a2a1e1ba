#include "fixtures/device.hpp"

#include <memory>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/factorisations/update_map.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/local_trainer.hpp"

#include "fixtures/standin.hpp"

// Factorisations on a device equal those on the host, and nothing in a local step waits for it.
namespace fedhpc::testing {
namespace {

struct Case {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::int64_t rank;
  FactorForm form = {};
};

std::vector<Case> cases() {
  const FactorForm raw{.view = ConvView::Raw};
  const FactorForm grid{.view = ConvView::Permuted, .blocks = BlockLayout::Grid};
  std::vector<Case> all{{"cp", {7, 5}, 3},
                        {"cp", {6, 4, 3, 3}, 5},
                        {"cp", {4, 3, 1, 1}, 2},
                        {"cp", {3, 3, 5, 2}, 1},
                        {"cp", {2, 3, 16, 16}, 4},
                        {"hadamard", {7, 5}, 3},
                        {"hadamard", {1, 5}, 1},
                        {"hadamard", {6, 4, 3, 3}, 2},
                        {"hadamard", {4, 3, 1, 1}, 1},
                        {"hadamard", {4, 3, 2, 3}, 3}};
  for (const std::string name : {"lora", "ffa_lora"}) {
    all.push_back({name, {7, 5}, 3, {.lora_alpha = 2}});
    all.push_back({name, {6, 4, 3, 3}, 4, raw});
  }
  for (const std::string of_trained : {"", "_f", "_aad"}) {
    for (const Case& one :
         {Case{"low_rank", {7, 5}, 3}, Case{"low_rank", {6, 4, 3, 3}, 4},
          Case{"low_rank", {6, 4, 3, 3}, 2, raw}, Case{"kronecker", {9, 9}, 1},
          Case{"kronecker", {7, 5}, 3}, Case{"kronecker", {4, 8}, 2}, Case{"kronecker", {1, 3}, 3},
          Case{"kronecker", {6, 4, 3, 3}, 4, grid}, Case{"kronecker", {8, 8}, 4, grid},
          Case{"kronecker", {6, 4, 3, 3}, 5, raw}}) {
      Case added = one;
      added.name += of_trained;
      all.push_back(added);
    }
  }
  return all;
}

/// No wait is allowed while this lives, where that can be told.
std::unique_ptr<NoWaiting> no_waiting() {
  return waits_for_device() < 0 ? nullptr : std::make_unique<NoWaiting>();
}

double distance(const Tensor& actual, const Tensor& expected) {
  return actual.cpu().sub(expected).norm().item<double>() /
         (1e-30 + expected.norm().item<double>());
}

class FactorisationsOnADevice : public DeviceTest {
 protected:
  at::Device device() const { return current_cuda_device(); }
};

/// One layer on the host and on the device, its rows lying apart in wider ones.
struct Layer {
  Layer(const Case& of, at::ScalarType type, std::int64_t clients, at::Device device)
      : shape{.sizes = of.sizes, .fan_in = 9} {
    at::manual_seed(11);
    for (std::unique_ptr<Factorisation>* made : {&host, &there}) {
      *made = make_factorisation(of.name, shape, Rank{of.rank}, of.form);
    }
    std::int64_t constants = 0;
    for (const FactorShape& constant : host->constants()) constants += constant.count();
    if (constants > 0) {
      const Tensor values = at::randn({constants}, type);
      host->set_constants(values);
      there->set_constants(values.to(device));
    }
    u = random(clients, host->count(), type);
    w = random(clients, shape.count(), type);
    u_there = wide(u.to(device));
    w_there = wide(w.to(device));
  }

  static Tensor random(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
    return at::randn({rows, columns}, type);
  }
  static Tensor wide(const Tensor& rows) {
    const Tensor wider = at::zeros({rows.size(0), rows.size(1) + 9}, rows.options());
    const Tensor columns = wider.narrow(1, 4, rows.size(1));
    columns.copy_(rows);
    return columns;
  }

  WeightShape shape;
  std::unique_ptr<Factorisation> host;
  std::unique_ptr<Factorisation> there;
  Tensor u;
  Tensor w;
  Tensor u_there;
  Tensor w_there;
};

TEST_F(FactorisationsOnADevice, EqualTheHostAndNeverWait) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double bound = type == at::kDouble ? 1e-12 : 1e-5;
    for (const std::int64_t clients : {1, 5}) {
      for (const Case& of : cases()) {
        SCOPED_TRACE(concat(of.name, " ", of.sizes.size(), " dimensions, ", of.sizes[0], " by ",
                            of.sizes[1], ", rank ", of.rank, ", ", clients, " clients"));
        Layer layer(of, type, clients, device());
        const Tensor w = at::empty_like(layer.w);
        const Tensor du = at::empty_like(layer.u);
        const Tensor distance_gradient = at::empty_like(layer.u);
        layer.host->expand_(layer.u, w);
        layer.host->pullback_(layer.u, layer.w, du);
        layer.host->distance_gradient_(layer.u, layer.w, 0.3, distance_gradient);
        const Tensor w_there = Layer::wide(at::zeros_like(layer.w_there));
        const Tensor du_there = Layer::wide(at::zeros_like(layer.u_there));
        const Tensor distance_there = Layer::wide(at::zeros_like(layer.u_there));
        {
          const auto forbidden = no_waiting();
          layer.there->expand_(layer.u_there, w_there);
          layer.there->pullback_(layer.u_there, layer.w_there, du_there);
          layer.there->distance_gradient_(layer.u_there, layer.w_there, 0.3, distance_there);
        }
        EXPECT_LT(distance(w_there, w), bound);
        EXPECT_LT(distance(du_there, du), bound);
        EXPECT_LT(distance(distance_there, distance_gradient), bound);
        // Nothing beside the columns has been written.
        const Tensor whole =
            du_there.as_strided({clients, layer.u.size(1) + 9}, {layer.u.size(1) + 9, 1}, 0);
        EXPECT_EQ(whole.narrow(1, 0, 4).abs().sum().item<double>(), 0);
        EXPECT_EQ(whole.narrow(1, 4 + layer.u.size(1), 5).abs().sum().item<double>(), 0);
      }
    }
  }
}

TEST_F(FactorisationsOnADevice, TheResidualOfWhatFactorsGiveIsZero) {
  for (const Case& of : cases()) {
    Layer layer(of, at::kFloat, 3, device());
    layer.there->expand_(layer.u_there, layer.w_there);
    const Tensor gradient = at::empty_like(layer.u_there);
    layer.there->distance_gradient_(layer.u_there, layer.w_there, 2, gradient);
    EXPECT_EQ(gradient.abs().max().item<double>(), 0) << of.name;
  }
}

TEST_F(FactorisationsOnADevice, FitsAreThoseOfTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const Case& of : cases()) {
      Layer layer(of, type, 1, device());
      const Tensor expected = layer.host->fit(layer.w[0], layer.u[0], 2);
      const Tensor fitted = layer.there->fit(layer.w_there[0], layer.u_there[0], 2);
      EXPECT_TRUE(fitted.is_cuda());
      EXPECT_TRUE(fitted.cpu().equal(expected)) << of.name;
      // As before for rows on the device.
      const Tensor w = at::empty_like(layer.w);
      layer.host->expand_(layer.u, w);
      layer.there->expand_(layer.u_there, layer.w_there);
      EXPECT_LT(distance(layer.w_there, w), type == at::kDouble ? 1e-12 : 1e-5) << of.name;
    }
  }
}

/// A map of whole models on the host and the same on the device.
struct Maps {
  Maps(const std::string& name, const Model& model, at::ScalarType type, at::Device device)
      : layout(model.layout()) {
    FactorisationOptions options;
    options.name = name;
    options.compression = 3;
    options.exclude = {"last"};
    options.view = ConvView::Permuted;
    for (std::unique_ptr<FactorMap>* made : {&host, &there}) {
      *made = std::make_unique<FactorMap>(options, layout);
    }
    host->draw_constants(5, {.range = 0.4}, type);
    there->draw_constants(5, {.range = 0.4}, at::TensorOptions(type).device(device));
    at::manual_seed(3);
  }

  LayoutPtr layout;
  std::unique_ptr<FactorMap> host;
  std::unique_ptr<FactorMap> there;
};

std::unique_ptr<Model> make(const std::string& name, const std::vector<std::int64_t>& shape,
                            NormChoice norm) {
  ModelOptions options;
  options.name = name;
  options.norm = norm;
  return make_model(options, shape, 10);
}

Rows moved(const Rows& rows, const LayoutPtr& layout, at::Device device) {
  return {rows.values.to(device), layout};
}

TEST_F(FactorisationsOnADevice, FactorMapsEqualTheHost) {
  const auto model = make("cnn2", {1, 8, 8}, NormChoice::Batch);
  for (const std::string& name : factorisation_registry().names()) {
    SCOPED_TRACE(name);
    Maps maps(name, *model, at::kDouble, device());
    const Rows one{at::randn({1, maps.layout->size()}, at::kDouble), maps.layout};
    const Rows one_there = moved(one, maps.layout, device());
    const Rows first = maps.host->initial(one, 9);
    const Rows first_there = maps.there->initial(one_there, 9);
    ASSERT_TRUE(first_there.values.is_cuda());
    EXPECT_TRUE(first_there.values.cpu().equal(first.values));
    const auto drawn = maps.host->drawn(first);
    const auto drawn_there = maps.there->drawn(first_there);
    ASSERT_EQ(drawn.size(), drawn_there.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_TRUE(drawn_there[i].values.cpu().equal(drawn[i].values)) << drawn[i].name;
    }

    const Rows u{first.values + 0.1 * at::randn({5, first.values.size(1)}, at::kDouble),
                 maps.host->factors()};
    const Rows dw{at::randn({5, maps.layout->size()}, at::kDouble), maps.layout};
    const Rows u_there = moved(u, maps.there->factors(), device());
    const Rows dw_there = moved(dw, maps.layout, device());
    const auto like = [](const Rows& rows) {
      return Rows{at::zeros_like(rows.values), rows.layout};
    };
    const Rows w = like(dw);
    const Rows du = like(u);
    const Rows distances = like(u);
    const Rows w_there = like(dw_there);
    const Rows du_there = like(u_there);
    const Rows distances_there = like(u_there);
    maps.host->expand_(u, w);
    maps.host->pullback_(u, dw, du);
    maps.host->distance_gradient_(u, dw, 0.2, distances);
    UpdateMap update(*maps.host, at::kDouble);
    UpdateMap update_there(*maps.there, one_there.values.options());
    update.frozen() = one;
    update_there.frozen() = one_there;
    const Rows updated = like(dw);
    const Rows updated_there = like(dw_there);
    update.expand_(u, updated);
    update.copy_passed_(dw, u, Tag::Buffer);
    {
      const auto forbidden = no_waiting();
      maps.there->expand_(u_there, w_there);
      maps.there->pullback_(u_there, dw_there, du_there);
      maps.there->distance_gradient_(u_there, dw_there, 0.2, distances_there);
      update_there.expand_(u_there, updated_there);
      update_there.copy_passed_(dw_there, u_there, Tag::Buffer);
    }
    EXPECT_LT(distance(w_there.values, w.values), 1e-12);
    EXPECT_LT(distance(du_there.values, du.values), 1e-12);
    EXPECT_LT(distance(distances_there.values, distances.values), 1e-12);
    EXPECT_LT(distance(updated_there.values, updated.values), 1e-12);
    EXPECT_TRUE(u_there.values.cpu().equal(u.values));
    EXPECT_GT(distance(u.values, du.values), 0);

    update.merge_(first);
    update_there.merge_(first_there);
    EXPECT_LT(distance(update_there.frozen().values, update.frozen().values), 1e-12);
    EXPECT_NEAR(maps.there->squared_length(one_there), maps.host->squared_length(one),
                1e-12 * maps.host->squared_length(one));
    const Rows two{dw.values.narrow(0, 0, 2), maps.layout};
    const Rows two_there = moved(two, maps.layout, device());
    const Rows from{u.values.narrow(0, 0, 2), u.layout};
    const Rows fitted = maps.host->fit(two, from, 1);
    const Rows fitted_there =
        maps.there->fit(two_there, moved(from, maps.there->factors(), device()), 1);
    ASSERT_TRUE(fitted_there.values.is_cuda());
    EXPECT_TRUE(fitted_there.values.cpu().equal(fitted.values));
    const Tensor layer =
        maps.there->fit_layer(1, one_there, {first_there.values, maps.there->factors()}, 1);
    EXPECT_TRUE(layer.cpu().equal(maps.host->fit_layer(1, one, first, 1)));
  }
}

/// Rows trained through a map by three rounds, on this device.
Tensor train(const Model& model, Shard& shard, FactorMap& map, bool as_update, const Rows& start,
             const TrainOptions& options, at::Device device) {
  shard.use_device_(device);
  LocalTrainer trainer(model, shard, options,
                       {.type = start.values.scalar_type(), .device = device, .seed = 7});
  Rows rows{start.values.to(device, /*non_blocking=*/false, /*copy=*/true), map.factors()};
  UpdateMap update(map, rows.values.options());
  const std::vector<std::int64_t> clients{0, 1, 2, 3};
  for (const std::int64_t round : {1, 2, 3}) {
    const std::int64_t before = waits_for_device();
    trainer.train_(rows, clients, round, {.map = as_update ? static_cast<RowMap*>(&update) : &map});
    if (round > 1 && before >= 0 && !device.is_cpu()) {
      EXPECT_EQ(waits_for_device() - before, round - 2) << "only for the pass before the last";
    }
  }
  const Tensor trained = rows.values.cpu();
  shard.use_device_(at::kCPU);
  return trained;
}

TEST_F(FactorisationsOnADevice, LocalTrainingThroughMapsEqualsTheHost) {
  DataOptions data;
  data.name = "glyphs";
  data.clients = 4;
  data.samples_per_client = 12;
  data.partition = "dirichlet";
  data.alpha = 3;
  const auto dataset = open_dataset(data);
  const Partition partition = make_partition(data, *dataset);
  Shard shard(*dataset, partition, {0, 1, 2, 3}, make_preparation(data, *dataset), DType::Float64);
  const auto model = make("cnn2", dataset->shape(), NormChoice::Batch);
  for (const std::string name : {"cp", "low_rank", "low_rank_aad", "kronecker", "hadamard"}) {
    for (const OptimizerKind kind : {OptimizerKind::Sgd, OptimizerKind::Momentum}) {
      Maps maps(name, *model, at::kDouble, device());
      const TrainOptions options{.batch_size = 4,
                                 .local_epochs = 2,
                                 .lr = 0.01,
                                 .optimizer = kind,
                                 .momentum = kind == OptimizerKind::Momentum ? 0.9 : 0};
      const Tensor row = initial_row(*maps.layout, 3, at::kDouble);
      const Rows start{
          maps.host->initial({row.reshape({1, -1}), maps.layout}, 5).values.repeat({4, 1}),
          maps.host->factors()};
      const bool as_update = name == "low_rank_aad";
      const Tensor expected = train(*model, shard, *maps.host, as_update, start, options, at::kCPU);
      const Tensor trained = train(*model, shard, *maps.there, as_update, start, options, device());
      EXPECT_GT(distance(start.values, expected), 1e-3) << name;
      EXPECT_LT(distance(trained, expected), 1e-10) << name;
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
