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

/// The edge servers of a round stand between its clients and the cloud. Every rank holds the rows
/// of its clients' edges.
class EdgeTier {
 public:
  /// `state` outlives it.
  explicit EdgeTier(RoundState& state) : state_(state) {}

  /// Sends the cloud's `model` [1, P] to the drawn edges; the others keep their row. Books one
  /// payload per drawn edge. Without a codec as algorithm.downlink_codec says.
  void download_(const Rows& model, EdgeRows& edges, const Codec& codec);
  void download_(const Rows& model, EdgeRows& edges);

  /// Runs `count` edge rounds. In each, clients exchange payloads with their edge. Training sees
  /// batches of a pass of its own, numbered like the edge round from 0.
  void rounds(std::int64_t count, const std::function<void()>& edge_round);
  /// The number of the current edge round, from 0.
  std::int64_t round() const { return state_.edge_round; }
  /// Draws the participants of the current edge round, at every drawn edge as many as the round
  /// has; see draw_by_samples(). After the edge rounds, the round's participants are those of all
  /// of them.
  void draw_participants(std::uint64_t seed);

  /// Starts a weighted mean of rows of the model's layout within every edge.
  EdgeMean mean() { return EdgeMean(state_.mean_services()); }

  /// The drawn edges of this rank where a participant has training samples. The other drawn edges
  /// take part, but do not act.
  std::vector<std::int64_t> training() const;

  /// The weight of each edge of this rank: the sum of its participants' weights.
  std::vector<double> weights_of_participants(Weighting weighting) const;
  /// 1 for each edge of this rank whose participants weigh anything, else 0.
  std::vector<double> equal_weights() const;
  /// The sum of the weights of all clients of each drawn edge of this rank; 0 for edges not drawn.
  std::vector<double> weights_of_clients(Weighting weighting) const;

  /// Sends the drawn edges' rows to the cloud and returns their weighted mean, [1, P]. When nobody
  /// weighs anything it returns `otherwise` [1, P], or zeros where that is undefined. Books one
  /// payload per drawn edge. Collective.
  Rows upload_mean(const EdgeRows& edges, std::span<const double> weights,
                   const Codec& codec = dense_codec(), const Rows& otherwise = {});

  /// Adds one value per edge of this rank to one of the method's own metrics: the mean over
  /// training() of all ranks.
  void note(const std::string& metric, std::span<const double> values);

 private:
  /// The drawn edges of this rank.
  std::vector<std::int64_t> drawn() const;
  void receive_(const Rows& model, EdgeRows& edges, const Codec* codec);
  Tensor mean_at_cloud(const EdgeRows& edges, std::span<const double> weights, const Codec& codec,
                       const Rows& otherwise);

  RoundState& state_;
  Cohort of_round_;                        // drawn before any for an edge round
  std::set<std::int64_t> of_edge_rounds_;  // drawn so far for them
};

}  // namespace fedhpc
