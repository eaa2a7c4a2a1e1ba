#include <numeric>

#include "fedhpc/core/error.hpp"
#include "fedhpc/factorisations/cp.hpp"

namespace fedhpc {

namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

template <typename Kind>
std::unique_ptr<Factorisation> make(const WeightShape& shape, const FactorSize& size) {
  const auto* rate = std::get_if<CompressionRate>(&size);
  return std::make_unique<Kind>(
      shape, rate != nullptr ? Kind::rank_of(shape, *rate) : std::get<Rank>(size).value);
}

}  // namespace

std::int64_t WeightShape::count() const { return product(sizes); }

std::int64_t FactorShape::count() const { return product(sizes); }

std::int64_t Factorisation::count() const {
  std::int64_t count = 0;
  for (const FactorShape& factor : factors()) count += factor.count();
  return count;
}

const std::vector<std::pair<std::string, std::string>>& factorisation_registry() {
  static const std::vector<std::pair<std::string, std::string>> registry = {
#define FEDHPC_FACTORISATION(name, type, sentence) {#name, sentence},
#include "factorisations/factorisations.def"
#undef FEDHPC_FACTORISATION
  };
  return registry;
}

std::unique_ptr<Factorisation> make_factorisation(const std::string& name, const WeightShape& shape,
                                                  const FactorSize& size) {
#define FEDHPC_FACTORISATION(id, type, sentence) \
  if (name == #id) return make<type>(shape, size);
#include "factorisations/factorisations.def"
#undef FEDHPC_FACTORISATION
  throw ConfigError(concat("model.factorisation: no factorisation '", name, "'"));
}

}  // namespace fedhpc
