#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {

/// A participant that is trained away from home.
struct Move {
  std::int64_t client = 0;
  int from = 0;  ///< its home
  int to = 0;

  bool operator==(const Move&) const = default;
};

/// What a round costs, in one unit, such as samples gone through. Functions of counts, the same on
/// every rank.
struct RoundCosts {
  std::function<double(std::int64_t client)> work;    ///< of its local training
  std::function<double(const Move& move)> of_moving;  ///< added to the work of both ranks
};

/// The ranks between which clients move.
enum class MovingRange {
  Everywhere,
  WithinEdges  ///< those that share the client's edge
};

/// Decides which participants of a round are trained away from home, ascending by client, so that
/// the rank with the most work has as little as possible. The largest clients stay at home as long
/// as the work there is within what no plan could go below. The others go to the rank with the
/// least. Nobody moves for a gain of less than 2 %. Depends on its arguments alone. Costs sorting
/// the cohort, and a look at the ranks for each client that moves.
std::vector<Move> plan_round(std::span<const std::int64_t> cohort, const Placement& placement,
                             MovingRange range, const RoundCosts& costs);

/// The work of every rank in a round with these moves.
std::vector<double> work_of_ranks(std::span<const std::int64_t> cohort, const Placement& placement,
                                  std::span<const Move> moves, const RoundCosts& costs);

/// Mean over maximum: the share of the ranks in use until the last is done; 1 where none works.
double balance_of(std::span<const double> work);

}  // namespace fedhpc
