#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fedhpc/algorithms/binary_update.hpp"
#include "fedhpc/algorithms/catch_up.hpp"
#include "fedhpc/training/row_optimizer.hpp"

namespace fedhpc {

/// FedBAT: S. Li, W. Xu, H. Wang, X. Tang, Y. Qi, S. Xu, W. Luo, Y. Li, X. He, R. Li: "FedBAT:
/// Communication-Efficient Federated Learning via Learnable Binarization", ICML 2024.
///
///   W + S(m; alpha)                     local models; W frozen, m and alpha trained
///   S(m; alpha) = alpha or -alpha       the first with probability
///                                       clip((m + alpha) / (2 alpha), 0, 1)
///   alpha = alpha_0 e^{rho a}           kept in [least_step, most_step]; a starts at 0
///   dL/dm = dL/dS 1{|m| <= alpha}       straight-through gradients
///   dL/dalpha = sum dL/dS (sign(S) - m / alpha), without m / alpha where |m| > alpha
///   W <- W + sum_i p_i S(m_i; alpha_i)
///
///   paper     code                   meaning; limit case
///   phi       algorithm.warm_up      the first floor(phi tau) of a client's tau local steps train
///                                    W + m in full; 1: all do, and payloads up are in full
///   alpha_0   start_alpha            then the mean of |m|, of every tensor its own; .01 within the
///                                    bounds where floor(phi tau) = 0
///   rho       algorithm.step_rate    0: alpha stays alpha_0
///   (bounds)  algorithm.least_step   alpha is at least that
///             algorithm.most_step    and at most that
///   (down)    algorithm.download     full: the model; binary: S of its last change
///   eta       train.lr               of m and a
///   E, B      train.local_epochs, train.batch_size
///
/// Weights of layers are binarised, the first and the last too. Biases, norms and embeddings are
/// trained and sent in full. An upload has a bit for every weight, and one number
/// for every tensor, alpha.
///
/// Downloads are the model in full. algorithm.download = binary is FedMUD's comparison with FedBAT:
/// the server sends S(Delta; mean |Delta|) of the mean update Delta, and every client keeps W. That
/// paper gives no formula, and what is lost is lost. A participant then receives the message of the
/// round before. One that has missed others first needs those, or W where that is less:
/// catch_up_bytes, no traffic of the rounds.
///
/// Numbers are drawn with key (seed, Purpose::Binarise, pass 0, epoch = local step, client, round),
/// at the end epoch = tau. The server's have pass 1. A client that cannot train sends 0.
///
/// Limit case: phi = 1 with download = full is federated averaging, with payloads in full.
/// Deviations: clients are weighed by algorithm.weighting; the public code weighs by batches.
/// train.weight_decay and train.clip_norm act on W + m and not on a; the public code's on m and a.
class FedBAT final : public Algorithm {
 public:
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Download { Full, Binary };
  struct StepSizes;
  struct Binarised {
    Rows m;        // [n, weights]
    Rows b;        // [n, weights]  S(m; alpha)
    Tensor alpha;  // [n, L]
  };

  Rows receive(Block& block, std::int64_t round);
  /// Returns the clients' S(m_i; alpha_i), and the change of all other columns: [C, P].
  Rows train(Block& block, const Rows& start, std::int64_t round);
  StepSizes step_sizes_of(Block& block, std::int64_t round) const;
  void take_step(LocalStep& step, const Rows& start, const Rows& local, StepSizes& sizes);
  /// Turns the gradients of models into those of m; the step sizes take their own step.
  void pull_back_(const Rows& gradients, const Binarised& s, std::int64_t first, StepSizes& sizes);
  /// Sets alpha_0 of clients from `first` on whose updates m are binarised from step `number` on.
  void start_alpha(const Rows& m, std::int64_t first, std::int64_t number, StepSizes& sizes) const;
  /// Returns alpha without its bounds, [C, L].
  Tensor alpha_of(const StepSizes& sizes) const;
  /// Binarises updates m of clients from `first` on, whose draws have this epoch.
  Binarised binarise(const Rows& m, std::int64_t first, const StepSizes& sizes,
                     const std::function<std::int64_t(std::size_t c)>& epoch) const;
  /// The part of a mean update that the server sends to all.
  Rows quantised(const Rows& update, std::int64_t round) const;

  double warm_up_ = 0.5;
  double step_rate_ = 6;
  double least_step_ = 5e-4;
  double most_step_ = 5e-2;
  Download download_ = Download::Full;
  Weighting weighting_ = Weighting::Samples;

  std::uint64_t seed_ = 0;
  BinaryUpdate binary_;
  std::unique_ptr<Codec> signs_;
  std::int64_t message_bytes_ = 0;
  std::unique_ptr<RowOptimizer> of_models_;
  std::unique_ptr<RowOptimizer> of_sizes_;
  CatchUp catch_up_;
  Rows global_;   // [1, P]  W without the last message
  Rows message_;  // [1, P]  the last mean update as sent
};

}  // namespace fedhpc
