#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "gpu/kernels/activations.hpp"
#include "gpu/kernels/all_kernels.hpp"
#include "gpu/kernels/batch_norm_gradient.hpp"
#include "gpu/kernels/batches.hpp"
#include "gpu/kernels/contractions.hpp"
#include "gpu/kernels/convolutions.hpp"
#include "gpu/kernels/losses.hpp"
#include "gpu/kernels/networks.hpp"
#include "gpu/kernels/norm_parameters.hpp"
#include "gpu/kernels/packs.hpp"
#include "gpu/kernels/pooling.hpp"
#include "gpu/kernels/products.hpp"
#include "gpu/kernels/residual_products.hpp"
#include "gpu/kernels/row_steps.hpp"
#include "gpu/kernels/sample_norm.hpp"
#include "gpu/kernels/sums.hpp"

namespace fedhpc {

namespace kernels {

/// Calls work(T{}) with the number type.
template <typename Work>
void with_real(DType type, Work&& work) {
  type == DType::Float32 ? work(float{}) : work(double{});
}

}  // namespace kernels

/// Every kernel of the table, by way of a launcher:
///
///   launcher.each(count, kernel)             kernel(i) for i = 0 .. count - 1
///   launcher.groups(count, threads, kernel)  kernel(group, g) for g = 0 .. count - 1, in groups of
///                                            up to so many threads (a multiple of 32)
///   launcher.tiles(count, kernel)            kernel(group, g, shared) likewise, in groups of
///                                            Launcher::kTileThreads, Kernel::kThreads
///
/// The launches of a table come one after the other. What is no kernel remains to a subclass.
template <typename Launcher>
class KernelTable : public AllKernels {
 public:
  explicit KernelTable(Launcher launcher = {}) : launcher_(std::move(launcher)) {}

  void product_in_order(const DeviceProduct& of) override {
    if (of.count == 0 || of.rows == 0 || of.columns == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      kernels::with_constant(of.a.transposed, [&](auto turn_a) {
        kernels::with_constant(of.b.transposed, [&](auto turn_b) {
          using Kernel = kernels::TileProduct<T, turn_a, turn_b, Launcher::kTileThreads>;
          launcher_.tiles(Kernel::groups_of(of), Kernel(of));
        });
      });
      if (DeviceProduct::parts_of(of.inner) > 1) {
        launcher_.each(of.count * of.rows * of.columns, kernels::AddParts<T>(of));
      }
    });
  }

  void gather(const DeviceGather& of) override {
    if (is_empty(of.inputs)) return;
    of_type(of.type, [&]<typename T>(T) {
      const bool wide = of.pixels && of.inputs.width % kernels::kPack<T> == 0;
      kernels::with_pack<T>(wide && kernels::packs<T>(of.inputs), [&](auto pack) {
        launcher_.groups(samples_of(of.inputs), kernels::threads_for(of.inputs.width / pack, 256),
                         kernels::Gather<T, pack>(of));
      });
    });
  }

  void cross_entropy(const DeviceCrossEntropy& of) override {
    if (is_empty(of.logits)) return;
    of_type(of.type, [&]<typename T>(T) {
      launcher_.groups(of.logits.clients, kernels::threads_for(32 * of.logits.batch, 512),
                       kernels::CrossEntropy<T>{.batch = of.logits.batch,
                                                .classes = of.logits.width,
                                                .logits = kernels::Samples<const T>(of.logits),
                                                .labels = of.labels,
                                                .label_stride = of.label_stride,
                                                .gradient = kernels::Samples<T>(of.gradient),
                                                .loss = of.loss});
    });
  }

  void score(const DeviceScore& of) override {
    if (is_empty(of.logits)) return;
    of_type(of.type, [&]<typename T>(T) {
      constexpr std::int64_t kSamples = kernels::Score<T>::kSamples;
      launcher_.groups((of.logits.batch + kSamples - 1) / kSamples, 32 * kSamples,
                       kernels::Score<T>{.batch = of.logits.batch,
                                         .classes = of.logits.width,
                                         .logits = kernels::Samples<const T>(of.logits),
                                         .labels = of.labels,
                                         .correct = of.correct,
                                         .loss = of.loss});
    });
  }

  void relu(const DeviceRelu& of) override {
    if (is_empty(of.y)) return;
    DeviceRelu flat = of;
    kernels::flatten({&flat.x, &flat.y});
    of_type(of.type, [&]<typename T>(T) {
      const bool wide = of_packs<T>(flat.y.width, {flat.x, flat.y});
      kernels::with_pack<T>(wide, [&](auto pack) {
        launcher_.each(
            values_of(flat.y) / pack,
            kernels::ReluForward<T, pack>{index_of(flat.y, pack), kernels::Samples<const T>(flat.x),
                                          kernels::Samples<T>(flat.y)});
      });
    });
  }

  void relu_gradient(const DeviceReluGradient& of) override {
    if (is_empty(of.dx)) return;
    DeviceReluGradient flat = of;
    kernels::flatten({&flat.y, &flat.dy, &flat.dx});
    of_type(of.type, [&]<typename T>(T) {
      const bool wide = of_packs<T>(flat.dx.width, {flat.y, flat.dy, flat.dx});
      kernels::with_pack<T>(wide, [&](auto pack) {
        launcher_.each(values_of(flat.dx) / pack,
                       kernels::ReluBackward<T, pack>{
                           index_of(flat.dx, pack), kernels::Samples<const T>(flat.y),
                           kernels::Samples<const T>(flat.dy), kernels::Samples<T>(flat.dx)});
      });
    });
  }

  void add_bias(const DeviceBias& of) override {
    if (is_empty(of.y)) return;
    const DeviceStack y = kernels::in_rows(of.y);
    of_type(of.type, [&]<typename T>(T) {
      kernels::with_pack<T>(of_packs<T>(y.width, {y}), [&](auto pack) {
        launcher_.each(values_of(y) / pack,
                       kernels::AddBias<T, pack>{
                           index_of(y, pack), kernels::Divisor(of.places), kernels::Samples<T>(y),
                           kernels::Columns<const T>(of.bias), of.y.channel_stride != 0, of.relu});
      });
    });
  }

  void bias_gradient(const DeviceBiasGradient& of) override {
    if (of.dy.clients == 0 || of.dy.width == 0) return;
    constexpr std::int64_t kOfAThread = 64;  // rows; more of them take threads of their own
    const bool rectified = of.rectified.data != nullptr;
    const bool at_once = rectified && of.places == 1 && of.dy.batch <= kOfAThread;
    if (rectified && !at_once) {
      KernelTable::relu_gradient({.type = of.type, .y = of.rectified, .dy = of.dy, .dx = of.dy});
    }
    const std::int64_t channels = of.dy.width / of.places;
    const std::int64_t count = of.dy.clients * channels;
    of_type(of.type, [&]<typename T>(T) {
      const kernels::Sink<T> sink(of.sink);
      const kernels::Divisor by_channel(channels);
      if (at_once) {
        launcher_.each(count,
                       kernels::RectifiedSumOverBatch<T>{by_channel, of.dy.batch,
                                                         kernels::Images<const T>(of.rectified, 1),
                                                         kernels::Images<T>(of.dy, 1), sink});
      } else if (of.places == 1) {
        launcher_.each(count, kernels::SumOverBatch<T>{by_channel, of.dy.batch,
                                                       kernels::Images<const T>(of.dy, 1), sink});
      } else {
        launcher_.groups(
            count, kernels::threads_for(of.dy.batch * of.places / 4, 512),
            kernels::SumOverPlaces<T>{by_channel, kernels::Divisor(of.places), of.dy.batch,
                                      of.places, kernels::Images<const T>(of.dy, of.places), sink});
      }
    });
  }

  void unfold(const DeviceUnfold& of) override {
    const std::int64_t count = samples_of(of.x) * of.in.channels * of.out.height * of.out.width;
    if (count == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      const bool wide = of.out.width % kernels::kPack<T> == 0 && kernels::is_aligned<T>(of.columns);
      kernels::with_pack<T>(
          wide, [&](auto pack) { launcher_.each(count / pack, kernels::Unfold<T, pack>(of)); });
    });
  }

  void fold(const DeviceUnfold& of) override {
    const std::int64_t count = samples_of(of.x) * of.in.channels * of.in.height * of.in.width;
    if (count == 0) return;
    const bool dilated = of.window.dilation.height > 1 || of.window.dilation.width > 1;
    of_type(of.type, [&]<typename T>(T) {
      if (dilated) {
        launcher_.each(count, kernels::Fold<T, true>(of));
      } else {
        launcher_.each(count, kernels::Fold<T, false>(of));
      }
    });
  }

  void turn_to(const DeviceTurn& of) override {
    turn(of, [&]<typename T>(T, auto pack, const kernels::TurnIndex& index) {
      return kernels::TurnTo<T, pack>{index, kernels::Samples<const T>(of.stack),
                                      static_cast<T*>(of.channel_major)};
    });
  }

  void turn_from(const DeviceTurn& of) override {
    turn(of, [&]<typename T>(T, auto pack, const kernels::TurnIndex& index) {
      return kernels::TurnFrom<T, pack>{index, kernels::Samples<T>(of.stack),
                                        static_cast<const T*>(of.channel_major),
                                        kernels::Columns<const T>(of.bias)};
    });
  }

  void max_pool(const DeviceMaxPool& of) override {
    const std::int64_t count = samples_of(of.x) * of.in.channels * of.out.height * of.out.width;
    if (count == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      if (of.parts.rows != nullptr) {
        launcher_.each(count, kernels::MaxPoolForward<T, kernels::ByParts>(of));
      } else {
        launcher_.each(count, kernels::MaxPoolForward<T, kernels::ByWindows>(of));
      }
    });
  }

  void max_pool_gradient(const DeviceMaxPool& of) override {
    const std::int64_t count = samples_of(of.x) * of.in.channels * of.in.height * of.in.width;
    if (count == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      if (of.parts.rows != nullptr) {
        launcher_.each(count, kernels::MaxPoolBackward<T, kernels::ByParts>(of));
      } else {
        launcher_.each(count, kernels::MaxPoolBackward<T, kernels::ByWindows>(of));
      }
    });
  }

  void average_pool(const DeviceAveragePool& of) override {
    const std::int64_t count = samples_of(of.x) * of.in.channels * of.out.height * of.out.width;
    if (count == 0) return;
    of_type(of.type,
            [&]<typename T>(T) { launcher_.each(count, kernels::AveragePoolForward<T>(of)); });
  }

  void average_pool_gradient(const DeviceAveragePool& of) override {
    const std::int64_t count = samples_of(of.x) * of.in.channels * of.in.height * of.in.width;
    if (count == 0) return;
    of_type(of.type,
            [&]<typename T>(T) { launcher_.each(count, kernels::AveragePoolBackward<T>(of)); });
  }

  void batch_norm(const DeviceBatchNorm& of) override {
    const std::int64_t count = of.x.clients * of.in.channels;
    if (count == 0 || of.x.batch == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      const bool pools = of.then == Then::ReluMaxPool;
      const bool wide = norm_packs<T>(of) && (pools || kernels::packs<T>(of.y));
      kernels::with_pack<T>(wide, [&](auto pack) {
        launcher_.groups(count, norm_threads(of, pack), kernels::BatchNormForward<T, pack>(of));
      });
    });
  }

  void batch_norm_gradient(const DeviceBatchNormGradient& of) override {
    const std::int64_t count = of.norm.x.clients * of.norm.in.channels;
    if (count == 0 || of.norm.x.batch == 0) return;
    of_type(of.norm.type, [&]<typename T>(T) {
      const bool pools = of.norm.then == Then::ReluMaxPool;
      const bool wide = !pools && norm_packs<T>(of.norm) && kernels::packs<T>(of.norm.y) &&
                        (of.dx.data == nullptr || kernels::packs<T>(of.dx));
      kernels::with_pack<T>(wide, [&](auto pack) {
        launcher_.groups(count, norm_threads(of.norm, pack),
                         kernels::BatchNormBackward<T, pack>(of));
      });
    });
  }

  void sample_norm(const DeviceSampleNorm& of) override {
    if (is_empty(of.x)) return;
    of_type(of.type, [&]<typename T>(T) {
      kernels::with_pack<T>(of_packs<T>(of.places, {of.x, of.y}), [&](auto pack) {
        launcher_.groups(samples_of(of.x) * of.groups, part_threads(of, pack),
                         kernels::SampleNormForward<T, pack>(of));
      });
    });
  }

  void sample_norm_gradient(const DeviceSampleNormGradient& of) override {
    const DeviceSampleNorm& norm = of.norm;
    if (norm.x.clients == 0 || norm.x.width == 0) return;
    of_type(norm.type, [&]<typename T>(T) {
      const bool wide = of_packs<T>(norm.places, {norm.x, norm.y});
      if (of.dx.data != nullptr && norm.x.batch > 0) {
        kernels::with_pack<T>(wide && kernels::packs<T>(of.dx), [&](auto pack) {
          launcher_.groups(samples_of(norm.x) * norm.groups, part_threads(norm, pack),
                           kernels::SampleNormBackward<T, pack>(of));
        });
      }
      // Behind the input's gradient: the sink may be the parameters.
      if (of.weight.out.data == nullptr && of.bias.out.data == nullptr) return;
      if (norm.places == 1) {
        using Kernel = kernels::NormParametersByValues<T, Launcher::kTileThreads>;
        return launcher_.tiles(norm.x.clients * Kernel::blocks_of(of), Kernel(of));
      }
      kernels::with_pack<T>(wide, [&](auto pack) {
        const std::int64_t values = samples_of(norm.x) / norm.x.clients * norm.x.width;
        launcher_.groups(norm.x.clients * norm.width(),
                         kernels::threads_for(values / norm.width() / pack / 4, 512),
                         kernels::NormParametersByPlaces<T, pack>(of));
      });
    });
  }

  void accumulate(const DeviceAccumulate& of) override {
    if (of.rows == 0 || of.columns == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      const bool wide = of.columns % kernels::kPack<T> == 0 && kernels::packs<T>(of.values) &&
                        kernels::packs<T>(of.sink.out);
      kernels::with_pack<T>(wide, [&](auto pack) {
        launcher_.each(of.rows * of.columns / pack,
                       kernels::Accumulate<T, pack>{kernels::Divisor(of.columns / pack),
                                                    kernels::Columns<const T>(of.values),
                                                    kernels::Sink<T>(of.sink)});
      });
    });
  }

  void step(const DeviceStep& of) override {
    const std::int64_t count = of.rows * kernels::Stretches::count_of(of.columns);
    if (count == 0 || of.range_count == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      const bool wide =
          kernels::go_together<T>(of.w, {of.g, of.states[0], of.states[1], of.penalty.centre});
      kernels::with_pack<T>(wide, [&](auto pack) {
        switch (of.rule) {
          case OptimizerKind::Sgd:
            return step_by<T, pack, OptimizerKind::Sgd>(count, of);
          case OptimizerKind::Momentum:
            return step_by<T, pack, OptimizerKind::Momentum>(count, of);
          case OptimizerKind::Nesterov:
            return step_by<T, pack, OptimizerKind::Nesterov>(count, of);
          case OptimizerKind::Adam:
            return step_by<T, pack, OptimizerKind::Adam>(count, of);
        }
      });
    });
  }

  void count_adam(const DeviceAdamCount& of) override {
    if (of.rows > 0) launcher_.each(of.rows, kernels::CountAdam{of.steps, of.corrections});
  }

  void add_penalty_gradient(const DevicePenaltyGradient& of) override {
    const std::int64_t count = of.rows * kernels::Stretches::count_of(of.columns);
    if (count == 0 || of.range_count == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      const bool wide = kernels::go_together<T>(of.w, {of.g, of.penalty.centre});
      kernels::with_pack<T>(wide, [&](auto pack) {
        launcher_.groups(count, kStepThreads,
                         kernels::PenaltyGradient<T, pack>(of, kernels::place_in_pack<T>(of.w)));
      });
    });
  }

  void add_weighted(const DeviceWeightedSum& of) override {
    if (of.rows == 0 || of.segment_count == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      launcher_.each(of.segment_count * (of.columns + 1), kernels::AddWeighted<T>(of));
    });
  }

  void row_products(const DeviceRowProducts& of) override {
    if (of.rows == 0 || of.columns == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      launcher_.groups(of.rows * DeviceRowProducts::pieces_of(of.columns),
                       kernels::RowProducts<T>::kThreads, kernels::RowProducts<T>(of));
    });
  }

  void add_pieces(const DevicePieces& of) override {
    if (of.rows == 0) return;
    launcher_.groups(of.rows, kernels::AddPieces::kThreads,
                     kernels::AddPieces{of.pieces, of.of_pieces, of.sums});
  }

  void network_residuals(const DeviceNetworkResiduals& of) override {
    of_network(of.of, [&]<typename T, VectorNorm kNorm>() {
      constexpr int kPack = kernels::kPack<T>;
      launcher_.each(of.of.nodes * of.of.stripes * DeviceNetwork::kStripe / kPack,
                     kernels::NetworkResiduals<T, kPack, kNorm>(of));
    });
  }

  void network_differences(const DeviceNetworkDifferences& of) override {
    of_network(of.of, [&]<typename T, VectorNorm kNorm>() {
      using Kernel = kernels::NetworkDifferences<T, kNorm>;
      launcher_.groups(Kernel::groups_of(of.of), 32 * Kernel::kItems, Kernel(of));
    });
  }

  void network_squares(const DeviceNetworkSquares& of) override {
    of_network(of.of, [&]<typename T, VectorNorm kNorm>() {
      using Kernel = kernels::NetworkSquares<T, kNorm>;
      launcher_.groups(of.of.stripes, Kernel::kThreads, Kernel(of));
    });
  }

  void contract(const DeviceContraction& of) override {
    if (kernels::is_empty(of.out)) return;
    of_type(of.type, [&]<typename T>(T) {
      launcher_.each(kernels::values_of(of.out), kernels::Contract<T>(of));
    });
  }

  void residual_product(const DeviceResidualProduct& of) override {
    if (of.count == 0 || of.rows == 0 || of.columns == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      using Kernel = kernels::ResidualProduct<T, Launcher::kTileThreads>;
      launcher_.tiles(of.count * Kernel::tiles_of(of), Kernel(of));
    });
  }

  void advance(std::int64_t* counters, std::int64_t count) override {
    if (count > 0) launcher_.each(count, kernels::Advance{counters});
  }

 protected:
  Launcher launcher_;

 private:
  static constexpr int kStepThreads = 256;

  static bool is_empty(const DeviceStack& stack) { return kernels::is_empty(stack); }
  static std::int64_t samples_of(const DeviceStack& stack) { return kernels::samples_of(stack); }
  static std::int64_t values_of(const DeviceStack& stack) { return kernels::values_of(stack); }

  template <typename Work>
  static void of_type(DType type, Work&& work) {
    kernels::with_real(type, std::forward<Work>(work));
  }

  /// Calls work with the number type and the norm of a network that has edges and columns.
  template <typename Work>
  static void of_network(const DeviceNetwork& of, const Work& work) {
    if (of.edges == 0 || of.stripes == 0) return;
    of_type(of.type, [&]<typename T>(T) {
      switch (of.norm) {
        case VectorNorm::One:
          return work.template operator()<T, VectorNorm::One>();
        case VectorNorm::Two:
          return work.template operator()<T, VectorNorm::Two>();
        case VectorNorm::Infinity:
          return work.template operator()<T, VectorNorm::Infinity>();
      }
    });
  }

  /// Samples of so many values that can be read and written in packs.
  template <typename T>
  static bool of_packs(std::int64_t width, std::initializer_list<DeviceStack> stacks) {
    return width % kernels::kPack<T> == 0 &&
           std::all_of(stacks.begin(), stacks.end(),
                       [](const DeviceStack& stack) { return kernels::packs<T>(stack); });
  }

  static kernels::StackIndex index_of(const DeviceStack& stack, int pack) {
    return kernels::StackIndex(stack.batch, stack.width / pack);
  }

  template <typename Make>
  void turn(const DeviceTurn& of, const Make& make) {
    if (is_empty(of.stack)) return;
    const std::int64_t channels = of.stack.width / of.places;
    of_type(of.type, [&]<typename T>(T) {
      const bool wide =
          of_packs<T>(of.places, {of.stack}) && kernels::is_aligned<T>(of.channel_major);
      kernels::with_pack<T>(wide, [&](auto pack) {
        const std::int64_t places = of.places / pack;
        const kernels::TurnIndex index{kernels::Divisor(channels), kernels::Divisor(of.stack.batch),
                                       kernels::Divisor(places), places};
        launcher_.each(values_of(of.stack) / pack, make(T{}, pack, index));
      });
    });
  }

  /// Planes of the input that can be read in packs.
  template <typename T>
  static bool norm_packs(const DeviceBatchNorm& of) {
    return of.in.height * of.in.width % kernels::kPack<T> == 0 && kernels::packs<T>(of.x);
  }

  static int norm_threads(const DeviceBatchNorm& of, int pack) {
    return kernels::threads_for(of.x.batch * of.in.height * of.in.width / pack / 2, 512);
  }

  static int part_threads(const DeviceSampleNorm& of, int pack) {
    return kernels::threads_for(of.channels * of.places / pack / 2, 512);
  }

  template <typename T, int N, OptimizerKind kRule>
  void step_by(std::int64_t count, const DeviceStep& of) {
    launcher_.groups(count, kStepThreads,
                     kernels::Step<T, N, kRule>(of, kernels::place_in_pack<T>(of.w)));
  }
};

}  // namespace fedhpc
