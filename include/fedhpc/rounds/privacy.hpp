#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fedhpc/core/metric.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// The keys of section privacy.
struct PrivacyOptions {
  double clip = 0;      ///< S; 0: nothing is clipped
  double noise = 0;     ///< z
  double delta = 1e-5;  ///< of the guarantee

  void declare(OptionSet& options);
  bool on() const { return clip > 0; }
  /// Throws ConfigError where other keys would break the guarantee. `uploads`: Traits::averaged_uploads.
  void check(const OptionSet& options, std::int64_t uploads) const;
};

/// Differential privacy of clients, with a server that is trusted (DP-FedAvg: McMahan, Ramage, Talwar
/// and Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018, Algorithm 1).
/// The server shortens what has arrived of each participant to S, and adds noise to the sum:
///
///   mean = 1/m (sum_k D_k min(1, S / ||D_k||) + N(0, z^2 S^2 I))
///
/// with m participants, or, where each client is drawn by itself, as many as are expected. A client
/// that stands in for nobody has D = 0. It does so with each payload of changes, over their trainable columns. The noise stands in the
/// row of one participant, so that any mean of the rows has it.
class Privacy {
 public:
  /// `uploads`: Traits::averaged_uploads.
  Privacy(const PrivacyOptions& options, std::uint64_t seed, std::int64_t uploads)
      : options_(options), seed_(seed), uploads_(uploads) {}

  bool has_noise() const { return options_.noise > 0; }
  /// Throws ConfigError where a participant has sent so many changes in a round, and fewer are
  /// accounted for, or none.
  void check_uploads(std::int64_t count) const;
  /// Throws ConfigError where `participants` have sent `all` changes together, and with noise not
  /// each of them `most`: the one whose rows bear the noise may be among the others.
  void check_all(std::int64_t all, std::int64_t most, std::int64_t participants) const;
  /// Shortens rows [C, P] to S; returns for each 1 where it was longer, else 0: [C]. A row whose length is no number
  /// becomes 0: of all that a client may send, only what has a length has a bound.
  std::vector<double> clip_(const Rows& rows) const;
  /// Adds the noise of a sum to `row` [1, P]: that of payload `number` of pass `pass` through the
  /// participants of a round, both from 0.
  void add_noise_(const Rows& row, std::int64_t round, std::int64_t pass,
                  std::int64_t number) const;

  /// What a run notes: the share of rows that were shortened, and with noise epsilon so far.
  static constexpr const char* kClipped = "clipped";
  static constexpr const char* kEpsilon = "epsilon";
  std::vector<Metric> metrics() const;

 private:
  PrivacyOptions options_;
  std::uint64_t seed_;
  std::int64_t uploads_;
};

/// Counts the changes that this rank's participants send in a round.
class SentChanges {
 public:
  /// Another pass through the participants begins.
  void begin_pass();
  /// Each of these clients sends one more. Returns the most that one of them has sent in the round.
  std::int64_t add(std::span<const std::int64_t> clients);
  /// The most that a client has sent in the round.
  std::int64_t most() const { return most_; }
  /// What a client has sent in this pass.
  std::int64_t of(std::int64_t client) const { return in_pass_.at(client); }
  /// What each has sent in the round.
  const std::map<std::int64_t, std::int64_t>& by_client() const { return in_round_; }

 private:
  std::map<std::int64_t, std::int64_t> in_pass_;   // by client
  std::map<std::int64_t, std::int64_t> in_round_;  // alike
  std::int64_t most_ = 0;
};

}  // namespace fedhpc
