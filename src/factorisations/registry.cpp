#include <numeric>

#include "fedhpc/core/error.hpp"
#include "fedhpc/factorisations/cp.hpp"
#include "fedhpc/factorisations/hadamard.hpp"
#include "fedhpc/factorisations/kronecker.hpp"
#include "fedhpc/factorisations/lora.hpp"
#include "fedhpc/factorisations/low_rank.hpp"

namespace fedhpc {

namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

template <typename Kind>
std::int64_t rank_of(const WeightShape& shape, const FactorSize& size, const FactorForm& form) {
  const auto* rate = std::get_if<CompressionRate>(&size);
  if (rate == nullptr) return std::get<Rank>(size).value;
  if constexpr (requires { Kind::rank_of(shape, *rate, form); }) {
    return Kind::rank_of(shape, *rate, form);
  } else {
    return Kind::rank_of(shape, *rate);
  }
}

template <typename Kind>
std::unique_ptr<Factorisation> make(const WeightShape& shape, const FactorSize& size,
                                    const FactorForm& form) {
  return std::make_unique<Kind>(shape, rank_of<Kind>(shape, size, form), form);
}

}  // namespace

std::int64_t WeightShape::count() const { return product(sizes); }

WeightShape WeightShape::in_two_dimensions() const {
  require(sizes.size() >= 2, "weights have outputs and inputs");
  WeightShape shape{.sizes = {sizes[0], sizes[1]}, .fan_in = fan_in};
  if (sizes.size() > 2) {
    shape.sizes.push_back(product({sizes.begin() + 2, sizes.end() - 1}));
    shape.sizes.push_back(sizes.back());
  }
  return shape;
}

std::int64_t FactorShape::count() const { return product(sizes); }

std::int64_t Factorisation::count() const {
  std::int64_t count = 0;
  for (const FactorShape& factor : factors()) count += factor.count();
  return count;
}

const std::vector<FactorShape>& Factorisation::constants() const {
  static const std::vector<FactorShape> none;
  return none;
}

void Factorisation::set_constants(const Tensor&) {
  require(constants().empty(), "a factorisation with constants keeps them");
}

Tensor Factorisation::matrix_of(const Tensor& w, const WeightShape& shape) const {
  return w.reshape({shape.sizes.front(), -1});
}

Registry<MakeFactorisation>& factorisation_registry() {
  static Registry<MakeFactorisation> registry({
#define FEDHPC_FACTORISATION(name, type, sentence) {#name, sentence, make<type>},
#include "factorisations/factorisations.def"
#undef FEDHPC_FACTORISATION
  });
  return registry;
}

std::unique_ptr<Factorisation> make_factorisation(const std::string& name, const WeightShape& shape,
                                                  const FactorSize& size, const FactorForm& form) {
  return factorisation_registry().find(name, "model.factorisation")(shape, size, form);
}

}  // namespace fedhpc
