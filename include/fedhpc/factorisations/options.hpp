#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"
#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// model.compression is full over compressed size of each layer, or of the whole model.
enum class CompressionScope { Layer, Model };

/// The factorisations a method works with.
struct FactorisationUse {
  std::vector<std::string> names{};  ///< a method's own first; none: weights in full
  std::vector<std::string>
      exclude{};  ///< layers that stay full unless model.exclude says otherwise
  ConvView view = ConvView::Permuted;
  Columns passed{};  ///< of layers that stay full, those in rows of factors
};

/// The `model.*` keys of factorised layers.
struct FactorisationOptions {
  static constexpr const char* kAuto = "auto";
  static constexpr const char* kNone = "none";

  std::string name = kAuto;         ///< auto: the method's own; none: weights in full
  std::vector<std::int64_t> ranks;  ///< one for all factorised layers, or one each; empty: rate
  double compression = 2;           ///< full size over compressed size
  CompressionScope scope = CompressionScope::Layer;
  std::vector<std::string> exclude{kAuto};  ///< layers that stay full: names, patterns, or first
                                            ///< and last; auto, until resolved: the method's own
  std::optional<ConvView> view;             ///< unset: the method's own
  BlockLayout blocks = BlockLayout::Stacked;
  RankBound bound = RankBound::None;
  std::optional<double> lora_alpha;  ///< unset: the rank
  Columns passed{};                  ///< of layers that stay full, those in rows of factors

  void declare(OptionSet& options);

  /// Settles what is left to the method, and chooses between ranks and the rate: those set at the
  /// higher level count. Throws ConfigError for a factorisation the method cannot use, sizes
  /// without one, and rank and rate at one level.
  void resolve(const OptionSet& options, const std::string& method, const FactorisationUse& use);
  bool factorises() const { return name != kNone; }
  FactorForm form() const {
    return {.view = view.value_or(ConvView::Permuted),
            .blocks = blocks,
            .bound = bound,
            .lora_alpha = lora_alpha};
  }
};

}  // namespace fedhpc
