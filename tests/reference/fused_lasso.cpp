#include "reference/fused_lasso.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>

namespace fedhpc::reference {

namespace {

/// |u - g|^2 / 2 + gamma |Lambda u|_1.
double objective(const Numbers& u, const Numbers& g, double gamma) {
  double sum = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    sum += (u[i] - g[i]) * (u[i] - g[i]) / 2;
    sum += gamma * std::abs(u[i] - (i + 1 < g.size() ? u[i + 1] : 0));
  }
  return sum;
}

/// Lambda Lambda^T v = Lambda g where v is free, v = +-gamma where it lies at a bound.
Numbers solved_where_free(const Numbers& g, double gamma, const std::vector<int>& bound) {
  const std::size_t n = g.size();
  Numbers pivot(n);
  Numbers v(n);
  for (std::size_t i = 0; i < n; ++i) {
    const bool free = bound[i] == 0;
    pivot[i] = free && i + 1 < n ? 2 : 1;
    v[i] = free ? g[i] - (i + 1 < n ? g[i + 1] : 0) : bound[i] * gamma;
    if (!free || i == 0) continue;
    if (bound[i - 1] == 0) pivot[i] -= 1 / pivot[i - 1];
    v[i] += v[i - 1] / pivot[i - 1];
  }
  for (std::size_t i = n; i-- > 0;) {
    if (bound[i] == 0) v[i] = (v[i] + (i + 1 < n ? v[i + 1] : 0)) / pivot[i];
  }
  return v;
}

}  // namespace

Numbers solved_by_dual(const Numbers& g, double gamma) {
  const std::size_t n = g.size();
  std::vector<int> bound(n, 0);
  Numbers v(n, 0);
  Numbers u(n);
  for (std::size_t step = 0; step < 100 * n; ++step) {
    const Numbers goal = solved_where_free(g, gamma, bound);
    double share = 1;
    std::size_t met = n;
    for (std::size_t i = 0; i < n; ++i) {
      if (bound[i] != 0 || std::abs(goal[i]) <= gamma) continue;
      const double until = (std::copysign(gamma, goal[i]) - v[i]) / (goal[i] - v[i]);
      if (met == n || until < share) {
        share = until;
        met = i;
      }
    }
    for (std::size_t i = 0; i < n; ++i) v[i] = met == n ? goal[i] : v[i] + share * (goal[i] - v[i]);
    if (met < n) {
      bound[met] = goal[met] > 0 ? 1 : -1;
      v[met] = bound[met] * gamma;
      continue;
    }
    for (std::size_t i = 0; i < n; ++i) u[i] = g[i] - v[i] + (i > 0 ? v[i - 1] : 0);
    double worst = 1e-13;
    for (std::size_t i = 0; i < n; ++i) {
      const double cost = -bound[i] * (u[i] - (i + 1 < n ? u[i + 1] : 0));
      if (cost <= worst) continue;
      worst = cost;
      met = i;
    }
    if (met == n) return u;
    bound[met] = 0;
  }
  throw std::logic_error("the active set does not settle");
}

Numbers solved_by_enumeration(const Numbers& g, double gamma) {
  const std::size_t n = g.size();
  Numbers best(n, 0);
  for (std::size_t code = 0; code < static_cast<std::size_t>(std::pow(3, n)); ++code) {
    std::vector<int> sign(n);
    for (std::size_t i = 0, rest = code; i < n; ++i, rest /= 3)
      sign[i] = static_cast<int>(rest % 3) - 1;
    Numbers u(n, 0);
    for (std::size_t begin = 0, end = 0; begin < n; begin = end) {
      double sum = begin > 0 ? gamma * sign[begin - 1] : 0;
      for (end = begin; end < n && (end == begin || sign[end - 1] == 0); ++end) sum += g[end];
      if (end == n && sign[n - 1] == 0) break;  // a plateau at 0
      sum -= gamma * sign[end - 1];
      std::fill(u.begin() + static_cast<std::ptrdiff_t>(begin),
                u.begin() + static_cast<std::ptrdiff_t>(end),
                sum / static_cast<double>(end - begin));
    }
    if (objective(u, g, gamma) < objective(best, g, gamma)) best = u;
  }
  return best;
}

}  // namespace fedhpc::reference
