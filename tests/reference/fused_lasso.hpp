#pragma once

#include <vector>

namespace fedhpc::reference {

using Numbers = std::vector<double>;

/// argmin_u |u - g|^2 / 2 + gamma |Lambda u|_1 by its dual, min |g - Lambda^T v|^2 / 2 over
/// |v| <= gamma, solved by an active set: goes to the best point with the other v at their bounds,
/// or to the first bound on the way, which is then kept; from the best point, lets go of the bound
/// that costs most. Throws where it does not come to an end.
Numbers solved_by_dual(const Numbers& g, double gamma);

/// The same by the least objective among all 3^n patterns of signs of Lambda u, each solved in
/// closed form.
Numbers solved_by_enumeration(const Numbers& g, double gamma);

}  // namespace fedhpc::reference
