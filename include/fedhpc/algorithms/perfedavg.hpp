#pragma once

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/algorithms/server_optimizer.hpp"

namespace fedhpc {

/// Per-FedAvg: A. Fallah, A. Mokhtari, A. Ozdaglar, "Personalized Federated Learning: A
/// Meta-Learning Approach", NeurIPS 2020, Algorithm 1; a baseline of sFedHP.
///
///   min_w sum_k p_k F_k(w),  F_k(w) = f_k(w - alpha grad f_k(w))
///
///   paper    code                    limit case
///   K        run.rounds
///   tau      train.local_steps       (or epochs) of batches D, D', and for HF D''
///   alpha    algorithm.inner_lr      0: FedAvg on the batches D'; FO needs it below 1 / L
///   beta     train.lr                0: w stays
///   FO, HF   algorithm.variant       of grad F_k(w) = (I - alpha H(w; D'')) grad f(w_hat; D'),
///                                    w_hat = w - alpha grad f(w; D): without H, or with H v as a
///                                    difference of gradients; the same for alpha = 0
///   delta    algorithm.delta         of that difference, see below
///
/// FO steps by (I - alpha H) H w where f is a quadratic, HF by (I - alpha H)^2 H w. Where the
/// curvature L of f is above 1 / alpha FO climbs, and w leaves although w_hat gets on.
///
/// HF takes  H v ~ (grad f(w + h v) - grad f(w - h v)) / 2h.  There h v has the length
/// delta (1 + ||w||). What an h of its own is worth depends on ||v||, which falls by orders of
/// magnitude in a run. The relative error of H v is about delta^2 by truncation, and a rounding
/// error / delta by cancellation. The best delta is the cube root of that rounding error: 4e-3 in
/// float32, 5e-6 in float64. Networks with kinks (ReLU) want it smaller, as steps across a kink see
/// a part of the slope's jump that H leaves out. The default, 1e-3, leaves H v three to four digits
/// in float32; the update loses less, since H v enters it times alpha.
///
/// Choices the paper leaves open:
/// - A client's own model is w after one step of size alpha on one of its training batches, taken
///   in the evaluation. The program of pFedMe's authors, which others compare with, takes two steps
///   on batches of the *test* samples that it then scores (.8625 for .7167 of the same model); that
///   is not offered here.
/// - The outer step follows train.optimizer, with weight decay if any; the paper's is plain. Inner
///   steps are plain.
/// - train_loss is that of w on D, where the first gradient is taken, which is also what moves
///   batch-norm statistics; w_hat has w's.
/// - Clients weigh their samples; the paper weighs them equally (weighting = uniform).
class PerFedAvg final : public Algorithm {
 public:
  Traits traits() const override { return {.models = Models::Both, .averaged_uploads = 1}; }
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override { server_.visit_state(state, "global", global_); }

 private:
  enum class Variant { FirstOrder, HessianFree };

  /// The rows of a block's clients, [C, P] each.
  struct Clients {
    Rows local;      // w
    Rows adapted;    // w_hat, or where else a gradient is taken
    Rows direction;  // HF: of the outer step
    Rows ahead;      // HF: the gradient at w + h v
  };

  /// w_k after all local steps from `start` [C, P].
  Rows client_update(Block& block, const Rows& start);
  /// direction -= alpha H(local; D'') direction; overwrites `adapted` and `ahead`.
  void subtract_curvature_(LocalStep& step, const Clients& all) const;

  double inner_lr_ = 0.05;
  Variant variant_ = Variant::FirstOrder;
  double delta_ = 1e-3;
  AveragingOptions averaging_;
  ServerOptimizer server_;

  std::unique_ptr<RowOptimizer> inner_;  // steps of size alpha
  std::unique_ptr<RowOptimizer> outer_;  // steps of size beta
  std::unique_ptr<Codec> codec_;         // of uploads
  Rows global_;                          // [1, P]  w
};

}  // namespace fedhpc
