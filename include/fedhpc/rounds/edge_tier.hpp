#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/rounds/edge_rows.hpp"
#include "fedhpc/rounds/round_state.hpp"

namespace fedhpc {

/// The edge servers of a round: between its clients and the cloud. Every rank holds the rows of its
/// clients' edges.
class EdgeTier {
 public:
  /// `state` outlives it.
  explicit EdgeTier(RoundState& state) : state_(state) {}

  /// The drawn edges receive the cloud's `model` [1, P], the others keep their row. Books one
  /// payload per drawn edge.
  void download_(const Rows& model, EdgeRows& edges, const Codec& codec = dense_codec());

  /// Runs `count` edge rounds. In each, clients exchange payloads with their edge, and training
  /// sees batches of a pass of its own, numbered like the edge round from 0.
  void rounds(std::int64_t count, const std::function<void()>& edge_round);
  /// The number of the edge round in hand, from 0.
  std::int64_t round() const { return state_.edge_round; }
  /// Draws the participants of the edge round in hand, at every drawn edge as many as the round
  /// has; see draw_by_samples(). Once the edge rounds are over, the round's participants are all of
  /// them together.
  void draw_participants(std::uint64_t seed);

  /// A weighted mean within every edge, of rows of the model's layout.
  EdgeMean mean() { return EdgeMean(state_.mean_services()); }

  /// The drawn edges of this rank where a participant has training samples. The others take part,
  /// but do not act.
  std::vector<std::int64_t> training() const;

  /// The weight of each edge of this rank: what its participants weigh together.
  std::vector<double> weights_of_participants(Weighting weighting) const;
  /// The same, but 1 wherever participants weigh anything.
  std::vector<double> equal_weights() const;
  /// The same of all clients of a drawn edge; 0 for an edge that is not drawn.
  std::vector<double> weights_of_clients(Weighting weighting) const;

  /// The weighted mean of the drawn edges' rows at the cloud, [1, P]; `otherwise` [1, P], or zeros
  /// where it is undefined, when nobody weighs anything. Books one payload per drawn edge.
  /// Collective.
  Rows upload_mean(const EdgeRows& edges, std::span<const double> weights,
                   const Codec& codec = dense_codec(), const Rows& otherwise = {});

  /// Adds one value of each edge of this rank to a metric of the method's own: the mean over
  /// training() of all ranks.
  void note(const std::string& metric, std::span<const double> values);

 private:
  /// The drawn edges of this rank.
  std::vector<std::int64_t> drawn() const;
  Tensor mean_at_cloud(const EdgeRows& edges, std::span<const double> weights, const Codec& codec,
                       const Rows& otherwise);

  RoundState& state_;
  std::vector<std::int64_t> of_round_;     // drawn before any for an edge round
  std::set<std::int64_t> of_edge_rounds_;  // drawn so far for them
};

}  // namespace fedhpc
