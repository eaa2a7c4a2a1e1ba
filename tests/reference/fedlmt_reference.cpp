#include "reference/fedlmt_reference.hpp"

namespace fedhpc::reference {

FactorOutcome fedlmt(const Problem& problem, const FactorisationSettings& settings,
                     const std::optional<double>& range) {
  require(settings.name == "low_rank", "FedLMT has layers U V^T");
  return averaged_factors(problem, settings, range);
}

}  // namespace fedhpc::reference
