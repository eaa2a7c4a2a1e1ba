#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/training/options.hpp"

namespace fedhpc {

/// The participants that are late in a round. Client i has number i mod n of the n numbers of train.stragglers. Of
/// the draws of (seed, Purpose::Stragglers, client, round) the first, u, makes it late if u is less. The second, v, is what it is late by:
/// it takes ceil((1 - v) K) of its K local steps. With train.straggler_work = none it does not take part. Nobody is
/// late before round 1.
class Stragglers {
 public:
  Stragglers(const TrainOptions& options, std::uint64_t seed)
      : shares_(options.stragglers),
        some_(options.has_stragglers()),
        work_(options.straggler_work),
        seed_(seed) {}

  /// Late clients train for less than others.
  bool train_less() const { return some_ && work_ == StragglerWork::Part; }
  /// Late clients do not take part.
  bool stay_away() const { return some_ && work_ == StragglerWork::None; }

  /// The local steps, of `all`, that a participant takes: all, or fewer if it is late; 0 of 0.
  std::int64_t steps(std::int64_t all, std::int64_t client, std::int64_t round) const;
  /// The part of its local steps that it takes, in (0, 1].
  double part(std::int64_t client, std::int64_t round) const;
  /// The part of its local training that a client does, in the mean of many rounds of K steps.
  double mean_part(std::int64_t client, std::int64_t steps) const;
  /// Those of `clients` that take part. At least one does: the one that is late last.
  std::vector<std::int64_t> on_time(std::span<const std::int64_t> clients,
                                    std::int64_t round) const;
  /// The share of rounds that a client stays away from.
  double away_share(std::int64_t client) const { return stay_away() ? share(client) : 0; }
  /// Whether a client stays away from a round.
  bool is_away(std::int64_t client, std::int64_t round) const;

 private:
  double share(std::int64_t client) const {
    return shares_[static_cast<std::size_t>(client) % shares_.size()];
  }

  std::vector<double> shares_;
  bool some_;
  StragglerWork work_;
  std::uint64_t seed_;
};

}  // namespace fedhpc
