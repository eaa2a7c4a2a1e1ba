#pragma once

#include "reference/factorised.hpp"

namespace fedhpc::reference {

/// A model some of whose layers are factorised. Its row of factors has, in the place of every such
/// layer's weights, the layer's factors.
class FactorisedModel {
 public:
  FactorisedModel(const Problem& problem, const FactorisationSettings& settings);

  const std::vector<FactorisedLayer>& layers() const { return layers_; }

  /// A row of factors: these, and what passes through from `model`.
  Parameters row(const std::vector<Parameters>& factors, const Parameters& model) const;
  /// frozen + expand(u) of factorised layers; all else is that of u.
  Parameters compose(const Parameters& frozen, const std::vector<Parameters>& constants,
                     const Parameters& u) const;
  /// The factors of layer l in a row.
  Parameters factors_in(const Parameters& u, std::size_t l) const;
  /// The places in a row that gradients move.
  std::vector<std::size_t> moving() const;
  /// What passes through and is no parameter becomes that of `model`.
  void take_buffers_(Parameters& u, const Parameters& model) const;
  /// `model` with zeros for the weights of factorised layers.
  Parameters without_factorised(const Parameters& model) const;
  /// Factors of independent normals, a key for each place of the row.
  std::vector<Parameters> normal_factors(std::uint64_t seed) const;

  std::int64_t row_size() const;          ///< Q, of what is trained and running statistics
  std::int64_t factor_size() const;       ///< F: of factorised layers
  std::int64_t weights_factored() const;  ///< D: what these stand for

 private:
  const FactorisedLayer* layer_at(std::size_t place) const;
  /// Trainable numbers with layers at this ratio over those of the full model.
  double share_at(const FactorisationSettings& settings, double ratio) const;

  LayoutPtr layout_;
  Columns passed_;
  std::vector<std::size_t> places_;  // of the weights to be factorised
  std::vector<FactorisedLayer> layers_;
};

}  // namespace fedhpc::reference
