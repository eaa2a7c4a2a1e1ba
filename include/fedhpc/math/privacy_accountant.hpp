#pragma once

#include <cstdint>
#include <vector>

namespace fedhpc {

/// Bounds the privacy loss of a Gaussian mechanism whose input is a random sample of all clients, by
/// Renyi differential privacy (Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled
/// Gaussian Mechanism", arXiv:1908.10530). With sampling rate q and noise z times the sensitivity
///
///   A(a) = sum_{k=0}^{a} binomial(a, k) (1 - q)^{a-k} q^k exp((k^2 - k) / (2 z^2))    a = 2, 3, ...
///
/// one release costs log A(a) / (a - 1) at order a, and T of them T times as much. Between whole
/// orders A is the integral
///
///   A(a) = E (1 - q + q exp((2 x - 1) / (2 z^2)))^a over x of N(0, z^2)
///
/// and for z < 0.1 the chord of log A, which is convex, with log A(1) = 0. Without sampling log A is
/// a (a - 1) / (2 z^2), and with it no more. For some delta then
/// (Canonne, Kamath and Steinke, arXiv:2004.00010, Proposition 12)
///
///   epsilon = min over a of T log A(a) / (a - 1) + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1)
class PrivacyAccountant {
 public:
  /// 0 < q <= 1, z > 0, 0 < delta < 1.
  PrivacyAccountant(double q, double z, double delta);

  /// Returns epsilon after so many releases; 0 of none.
  double epsilon(std::int64_t releases) const;

 private:
  struct Order {
    double a;
    double log_moment;  // log A(a)
  };
  std::vector<Order> orders_;
  double delta_;
};

}  // namespace fedhpc
