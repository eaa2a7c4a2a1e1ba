#include "engine/evaluation.hpp"

#include <limits>

#include <ATen/ops/empty.h>

namespace fedhpc {

RankEvaluation::RankEvaluation(Evaluator& evaluator, const Shard& shard, const Shard* server,
                               const Topology& topology)
    : evaluator_(evaluator),
      shard_(shard),
      server_(server),
      topology_(topology),
      personal_(shard.clients().size()) {}

void RankEvaluation::global(const Rows& model) {
  model_ = model.clone();
  personal_ = evaluator_.each_client(model, shard_, shard_.clients());
  if (server_ != nullptr) official_ = evaluator_.each_chunk(model, *server_);
}

void RankEvaluation::edges(const EdgeRows& models) {
  has_edges_ = true;
  const std::vector<std::int64_t>& clients = shard_.clients();
  edge_.assign(clients.size(), Score{});
  for (std::int64_t i = 0; i < models.count(); ++i) {
    std::vector<std::int64_t> members;
    std::vector<std::size_t> places;
    for (std::size_t c = 0; c < clients.size(); ++c) {
      if (topology_.placement().edge_of(clients[c]) != models.first + i) continue;
      members.push_back(clients[c]);
      places.push_back(c);
    }
    const Rows model{models.rows.values.narrow(0, i, 1), models.rows.layout};
    const std::vector<Score> scores = evaluator_.each_client(model, shard_, members);
    for (std::size_t m = 0; m < scores.size(); ++m) edge_[places[m]] = scores[m];
  }
}

std::vector<Score> gather_scores(Communicator& comm, const std::vector<Score>& mine) {
  Tensor packed = at::empty({static_cast<std::int64_t>(mine.size()), 3}, at::kDouble);
  auto* values = packed.data_ptr<double>();
  for (const Score& score : mine) {
    *values++ = score.samples;
    *values++ = score.correct;
    *values++ = score.loss;
  }
  const Tensor all = comm.gather(packed, 0);
  std::vector<Score> scores;
  for (std::int64_t c = 0; c < all.size(0); ++c) {
    const auto* row = all.const_data_ptr<double>() + 3 * c;
    scores.push_back({row[0], row[1], row[2]});
  }
  return scores;
}

std::vector<std::int64_t> gathered_places(const Placement& placement) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(placement.clients()));
  std::int64_t next = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    for (const std::int64_t client : placement.clients_of_rank(rank)) places[client] = next++;
  }
  return places;
}

double mean_edge_accuracy(const std::vector<Score>& scores, const Placement& placement) {
  double sum = 0;
  double edges = 0;
  for (std::int64_t edge = 0; edge < placement.edges(); ++edge) {
    double correct = 0;
    double samples = 0;
    for (const std::int64_t client : placement.clients_of_edge(edge)) {
      correct += scores[static_cast<std::size_t>(client)].correct;
      samples += scores[static_cast<std::size_t>(client)].samples;
    }
    if (samples == 0) continue;
    sum += correct / samples;
    edges += 1;
  }
  return edges > 0 ? sum / edges : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace fedhpc
