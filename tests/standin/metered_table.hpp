#pragma once

#include "gpu/kernels/table.hpp"
#include "standin/device.hpp"

namespace fedhpc::standin {

/// Says of every kernel what it costs, where that is counted.
template <typename Launcher>
class MeteredTable : public KernelTable<Launcher> {
  using Base = KernelTable<Launcher>;

 public:
  void product(const DeviceProduct& of) override {
    metered("product", costs::of(of), [&] { multiply(of); });
  }
  void product_in_order(const DeviceProduct& of) override {
    metered("product_in_order", costs::in_order(of), [&] { Base::product_in_order(of); });
  }
  void row_products(const DeviceRowProducts& of) override {
    metered("row_products", costs::of(of), [&] { Base::row_products(of); });
  }
  void add_pieces(const DevicePieces& of) override {
    metered("add_pieces", costs::of(of), [&] { Base::add_pieces(of); });
  }
  void network_residuals(const DeviceNetworkResiduals& of) override {
    metered("network_residuals", costs::of(of), [&] { Base::network_residuals(of); });
  }
  void network_differences(const DeviceNetworkDifferences& of) override {
    metered("network_differences", costs::of(of), [&] { Base::network_differences(of); });
  }
  void network_squares(const DeviceNetworkSquares& of) override {
    metered("network_squares", costs::of(of), [&] { Base::network_squares(of); });
  }
  void gather(const DeviceGather& of) override {
    metered("gather", costs::of(of), [&] { Base::gather(of); });
  }
  void cross_entropy(const DeviceCrossEntropy& of) override {
    metered("cross_entropy", costs::of(of), [&] { Base::cross_entropy(of); });
  }
  void score(const DeviceScore& of) override {
    metered("score", costs::of(of), [&] { Base::score(of); });
  }
  void step(const DeviceStep& of) override {
    metered("step", moved(of), [&] { Base::step(of); });
  }
  void count_adam(const DeviceAdamCount& of) override {
    metered("count_adam", costs::of(of), [&] { Base::count_adam(of); });
  }
  void add_penalty_gradient(const DevicePenaltyGradient& of) override {
    metered("add_penalty_gradient", moved(of), [&] { Base::add_penalty_gradient(of); });
  }
  void add_weighted(const DeviceWeightedSum& of) override {
    metered("add_weighted", costs::of(of), [&] { Base::add_weighted(of); });
  }
  void contract(const DeviceContraction& of) override {
    metered("contract", costs::of(of), [&] { Base::contract(of); });
  }
  void residual_product(const DeviceResidualProduct& of) override {
    metered("residual_product", costs::of(of), [&] { Base::residual_product(of); });
  }
  void relu(const DeviceRelu& of) override {
    metered("relu", costs::of(of), [&] { Base::relu(of); });
  }
  void relu_gradient(const DeviceReluGradient& of) override {
    metered("relu_gradient", costs::of(of), [&] { Base::relu_gradient(of); });
  }
  void add_bias(const DeviceBias& of) override {
    metered("add_bias", costs::of(of), [&] { Base::add_bias(of); });
  }
  void bias_gradient(const DeviceBiasGradient& of) override {
    metered("bias_gradient", costs::of(of), [&] { Base::bias_gradient(of); });
  }
  void unfold(const DeviceUnfold& of) override {
    metered("unfold", costs::of(of, /*sums=*/false), [&] { Base::unfold(of); });
  }
  void fold(const DeviceUnfold& of) override {
    metered("fold", costs::of(of, /*sums=*/true), [&] { Base::fold(of); });
  }
  void turn_to(const DeviceTurn& of) override {
    metered("turn_to", costs::of(of), [&] { Base::turn_to(of); });
  }
  void turn_from(const DeviceTurn& of) override {
    metered("turn_from", costs::of(of), [&] { Base::turn_from(of); });
  }
  void max_pool(const DeviceMaxPool& of) override {
    metered("max_pool", costs::of(of), [&] { Base::max_pool(of); });
  }
  void max_pool_gradient(const DeviceMaxPool& of) override {
    metered("max_pool_gradient", costs::of(of), [&] { Base::max_pool_gradient(of); });
  }
  void average_pool(const DeviceAveragePool& of) override {
    metered("average_pool", costs::of(of), [&] { Base::average_pool(of); });
  }
  void average_pool_gradient(const DeviceAveragePool& of) override {
    metered("average_pool_gradient", costs::of(of), [&] { Base::average_pool_gradient(of); });
  }
  void batch_norm(const DeviceBatchNorm& of) override {
    metered("batch_norm", costs::of(of), [&] { Base::batch_norm(of); });
  }
  void batch_norm_gradient(const DeviceBatchNormGradient& of) override {
    metered("batch_norm_gradient", costs::of(of), [&] { Base::batch_norm_gradient(of); });
  }
  void sample_norm(const DeviceSampleNorm& of) override {
    metered("sample_norm", costs::of(of), [&] { Base::sample_norm(of); });
  }
  void sample_norm_gradient(const DeviceSampleNormGradient& of) override {
    metered("sample_norm_gradient", costs::of(of), [&] { Base::sample_norm_gradient(of); });
  }
  void accumulate(const DeviceAccumulate& of) override {
    metered("accumulate", costs::of(of), [&] { Base::accumulate(of); });
  }
  void advance(std::int64_t* counters, std::int64_t count) override {
    metered("advance", {16 * count, static_cast<double>(count)},
            [&] { Base::advance(counters, count); });
  }

 protected:
  virtual void multiply(const DeviceProduct& of) = 0;

 private:
  /// The cost of what moves columns in ranges. They are there where nothing runs late.
  template <typename Of>
  static Cost moved(const Of& of) {
    if (Device::computes()) return {};
    return costs::of(of, [](const Range* ranges) { return DeviceMemory::get().reach(ranges); });
  }

  template <typename Launch>
  static void metered(const char* name, Cost cost, const Launch& launch) {
    if (Device::computes()) return launch();
    const Meter::Kernel kernel(Device::get().meter(), name, cost);
    launch();
  }
};

}  // namespace fedhpc::standin
