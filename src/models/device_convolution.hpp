#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "fedhpc/math/products.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/image_layers.hpp"

#include "models/convolution_choice.hpp"

namespace fedhpc {

/// Computes the convolutions of one layer on a device, each in the fastest way. Each of C clients
/// has weights of its own, rows [C, out (in / groups) kh kw] of any stride. Images are stacks
/// [C, B, channels height width], or by channels [C, B, channels, places].
class DeviceConvolution {
 public:
  DeviceConvolution(const ImageShape& in, const ImageShape& out, const Window& window,
                    std::int64_t groups, const Pass& pass)
      : in_(in),
        out_(out),
        window_(window),
        groups_(groups),
        arithmetic_(pass.arithmetic),
        trials_(pass.convolutions),
        kept_(trials_ == nullptr ? nullptr : static_cast<KeptColumns*>(pass.saved.of_part.get())) {}

  /// `bias` [C, out] may be undefined. When training, columns are kept for the weights' gradient.
  void forward(const Tensor& weights, const Tensor& bias, const Tensor& x, const Tensor& y) const;
  /// target [C, out (in / groups) kh kw] = keep target + scale dW
  void weight_gradient(const Tensor& x, const Tensor& dy, const Tensor& target, double scale,
                       double keep) const;
  void input_gradient(const Tensor& weights, const Tensor& dy, const Tensor& dx) const;
  /// Lets the columns go that forward has kept.
  void drop_columns() const {
    if (kept_ != nullptr) kept_->drop();
  }

 private:
  using Way = ConvolutionWay;
  struct Target {
    const Tensor& rows;
    double scale;
    double keep;

    /// keep rows + scale values [C, n], for `count` clients from number `first` on.
    void add(const Tensor& values, std::int64_t first, std::int64_t count) const;
  };

  /// The values of a window in all groups, and in one.
  std::int64_t all_inner() const { return in_.channels * window_.size.product(); }
  std::int64_t inner() const { return all_inner() / groups_; }
  ConvolutionCase case_of(ConvolutionDirection direction, const Tensor& stack) const;
  std::optional<Way> told() const;
  Way choose(ConvolutionDirection direction, const Tensor& stack,
             const std::function<void(Way)>& run) const;
  Shape shape_of_columns(const Tensor& stack) const {
    return {stack.size(0), all_inner(), stack.size(1) * out_.places()};
  }
  Tensor columns_to_keep(const Tensor& x) const;
  Tensor kept_columns(const Tensor& x) const;
  Tensor rounded(const Tensor& values) const;
  Tensor images(const Tensor& stack, const ImageShape& shape, Way way) const;
  Tensor kernels(const Tensor& rows, Way way) const;
  /// Weights [C, n] whose groups lie one after the other: of one group the rows themselves.
  Tensor one_by_one(const Tensor& rows) const { return groups_ == 1 ? rows : rows.contiguous(); }
  /// The weights of every group of every client. Precondition: one_by_one.
  MatrixStack weights_of_groups(const Tensor& rows) const {
    if (groups_ == 1) return matrices_in(rows, 0, out_.channels, inner());
    return of_groups(rows.view({rows.size(0), out_.channels, inner()}), out_.channels / groups_);
  }
  /// [C, groups rows, places] as one matrix for every group.
  MatrixStack of_groups(const Tensor& all, std::int64_t rows) const {
    return matrices_of(all.view({all.size(0) * groups_, rows, all.size(2)}));
  }
  /// Outputs by channels [C, B, channels, places] as one matrix [channels of a group, B places] for
  /// every group.
  MatrixStack outputs_of_groups(const Tensor& images) const;
  Tensor by_channels(const Tensor& stack) const;
  Tensor of_client(const Tensor& all, std::int64_t c, std::int64_t count) const;
  void each_slice(const Tensor& stack,
                  const std::function<void(std::int64_t, std::int64_t)>& work) const;
  DeviceUnfold unfolding(const Tensor& stack, const Tensor& columns) const;
  Tensor unfolded(const Tensor& stack, const Tensor& memory = {}) const;
  DeviceTurn turning(const Tensor& stack, const Tensor& images) const;
  Tensor turned(const Tensor& stack) const;

  /// `kept` is for the columns, or undefined.
  void forward(const Tensor& weights, const Tensor& bias, const Tensor& x, const Tensor& y, Way way,
               const Tensor& kept = {}) const;
  void add_bias(const Tensor& bias, const Tensor& y) const;
  void forward_unfolded(const Tensor& weights, const Tensor& bias, const Tensor& x, const Tensor& y,
                        const Tensor& kept) const;
  void weight_gradient(const Tensor& x, const Tensor& dy, const Target& target, Way way) const;
  void weight_gradient_unfolded(const Tensor& x, const Tensor& dy, const Target& target) const;
  void input_gradient(const Tensor& weights, const Tensor& dy, const Tensor& dx, Way way) const;
  void input_gradient_unfolded(const Tensor& weights, const Tensor& dy, const Tensor& dx) const;

  ImageShape in_;
  ImageShape out_;
  Window window_;
  std::int64_t groups_;
  Arithmetic arithmetic_;
  ConvolutionTrials* trials_;
  KeptColumns* kept_;
};

}  // namespace fedhpc
