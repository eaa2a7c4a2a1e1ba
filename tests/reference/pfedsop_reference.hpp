#pragma once

#include <optional>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// Which of a client's two models of a round: x_it before its local training, x_it^T after it.
enum class Moment { Before, After };

struct PFedSOPSettings {
  double personal_lr = 0.01;  ///< eta_1
  double rho = 1;
  double lambda = 1;
  Moment persist = Moment::After;   ///< the model a client goes on from
  Moment evaluate = Moment::After;  ///< the one that is evaluated
  bool personalise = true;          ///< else x_it = x_i
  std::optional<double> beta = {};  ///< in place of the angle's
};

/// What the clients that came again and trained have noted in a round.
struct PFedSOPRound {
  std::vector<double> angles;
  std::vector<double> betas;
  std::vector<double> step_norms;  // ||x_it - x_i||
  std::int64_t participants = 0;
  std::int64_t new_participants = 0;
};

struct PFedSOPOutcome {
  std::vector<Parameters> personal;  // [N]; of a client that never trained: x
  std::vector<double> train_loss;    // per round
  std::vector<PFedSOPRound> rounds;
  Tensor global_update;  // [d] Delta_T
};

/// Sen and Mohan, pFedSOP, Algorithms 1 to 3, with updates of the trainable parameters only and
/// plain SGD; running statistics stay with the client. Uniform means by problem.uniform.
PFedSOPOutcome pfedsop(const Problem& problem, const PFedSOPSettings& settings);

/// The angle between two updates, a right one where one of them is 0.
double angle_between(const Tensor& a, const Tensor& b);

/// beta by the Gompertz function of the angle.
double gompertz(double angle, double lambda);

/// (Delta Delta^T + rho I)^-1 Delta by the d x d system itself.
Tensor second_order_step(const Tensor& delta, double rho);

/// Linearly interpolated between the nearest values, NaN of none.
double percentile(std::vector<double> values, double percent);

}  // namespace fedhpc::reference
