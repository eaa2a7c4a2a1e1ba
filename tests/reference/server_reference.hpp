#pragma once

#include <functional>
#include <string>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct ServerSettings {
  std::string optimizer = "sgd";
  double lr = 1;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double tau = 1e-3;
};

/// The server of Reddi et al. 2021, Algorithm 2, and of Hsu et al. 2019, number by number.
class Server {
 public:
  explicit Server(const ServerSettings& settings) : settings_(settings) {}
  /// The next global model after `w`, where the clients' mean is `mean`. Running statistics become
  /// the mean's.
  Parameters step(const Problem& problem, const Parameters& w, const Parameters& mean);

 private:
  double step_of(double delta, double& m, double& v) const;

  ServerSettings settings_;
  Parameters m_;
  Parameters v_;
};

/// Rounds of FedAvg whose server steps along the mean update, clients with the proximal term mu.
Outcome fedopt(const Problem& problem, const ServerSettings& settings, double mu = 0);

}  // namespace fedhpc::reference
