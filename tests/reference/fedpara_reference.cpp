#include "reference/fedpara_reference.hpp"

namespace fedhpc::reference {

FactorOutcome fedpara(const Problem& problem, const FactorisationSettings& settings,
                      const std::optional<double>& range) {
  require(settings.name == "hadamard", "FedPara has layers of two products");
  return averaged_factors(problem, settings, range);
}

}  // namespace fedhpc::reference
