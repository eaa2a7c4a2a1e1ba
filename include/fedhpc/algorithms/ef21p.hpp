#pragma once

#include <optional>

#include "fedhpc/algorithms/catch_up.hpp"
#include "fedhpc/codecs/compressors.hpp"
#include "fedhpc/rounds/random_columns.hpp"

namespace fedhpc {

/// EF21-P: K. Gruntkowska, A. Tyurin, P. Richtarik: "EF21-P and Friends: Improved Theoretical
/// Communication Complexity for Distributed Optimization with Bidirectional Compression", ICML
/// 2023. Here as the baseline of FedMUD, whose clients send updates of local training.
///
///   Delta_i  <- w_i - w^t, w_i trained from w^t                                on the clients
///   x^{t+1}  <- x^t + gamma sum_i p_i C_i(Delta_i)                             on the server
///   w^{t+1}  <- w^t + TopK(x^{t+1} - w^t)                        on the server and the clients
///
///   paper       code                  meaning; limit case
///   x           exact_                the server's model; what w lacks of it is sent later: error
///                                     feedback
///   w           shared_ + message_    what clients have, and what is evaluated
///   C_i         algorithm.upload      rand_k (columns by a seed), top_k, or dense: all columns
///   K / d       algorithm.fraction    of the d columns that are compressed, each way; at least one
///                                     column. 1 with gamma = 1: FedAvg
///   K           algorithm.columns     in place of the fraction; 0: by the fraction
///   omega + 1   algorithm.scale       true: Rand-K times d / K, which makes it unbiased
///   gamma       algorithm.server_lr   1: the mean; 0: x stays but for norms
///
/// Every trainable column is compressed but those of norms, which travel in full with their
/// statistics. Gamma does not apply to these: a variance moved beyond the mean may be negative.
/// Top-K sends K places of ceil(log2 d) bits and K values, Rand-K a seed of 8 bytes and K values.
///
/// x and w are the server's; clients have w, which takes every message. The paper's clients all
/// take part. Here a participant receives the message of the round before. One that has missed
/// others first needs those, or w where that is less: catch_up_bytes, no traffic of the rounds.
///
/// Limit case: K = d and gamma = 1 are FedAvg.
/// Deviations: FedMUD does not say whether Rand-K is scaled by d / K. Unbiased steps of that length
/// are unstable for updates of local training; by default they are not taken. Clients are weighed
/// by algorithm.weighting; the paper's equally.
class EF21P final : public Algorithm {
 public:
  void declare(OptionSet& options) override;
  void initialise(const Setup& setup) override;
  void round(Round& round) override;
  void evaluate(Evaluation& evaluation) override;
  void visit_state(StateVisitor& state) override;

 private:
  enum class Upload { RandK, TopK, Dense };

  /// K. Throws ConfigError where there are fewer columns.
  std::int64_t columns_sent() const;
  Rows receive(Block& block, std::int64_t round);
  /// C_i(Delta_i), [C, P].
  Rows send(Block& block, const Rows& updates) const;
  /// TopK of a row [1, P].
  Rows largest(const Rows& row) const;

  double fraction_ = 1.0 / 32;
  std::int64_t columns_wanted_ = 0;
  Upload upload_ = Upload::RandK;
  bool scale_ = false;
  double server_lr_ = 1;
  Weighting weighting_ = Weighting::Samples;

  LayoutPtr compressed_;                  // the model's, but with no column trainable that is sent
                                          // in full
  std::optional<RandomColumns> columns_;  // of Rand-K
  std::unique_ptr<Codec> top_k_;
  std::int64_t message_bytes_ = 0;
  CatchUp catch_up_;
  Rows exact_;    // [1, P]  x
  Rows shared_;   // [1, P]  w without the last message
  Rows message_;  // [1, P]
};

}  // namespace fedhpc
