#include "engine/evaluation.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// Some of a rank's clients, which may train before they are evaluated.
class AdaptingBlock : public EvaluationBlock {
 public:
  AdaptingBlock(const Adaptation& adaptation, std::span<const std::int64_t> clients)
      : adaptation_(adaptation), clients_(clients) {}

  std::span<const std::int64_t> clients() const override { return clients_; }
  std::int64_t round() const override { return adaptation_.round; }

  Rows as_received(const Rows& models) const override {
    if (adaptation_.buffers == nullptr) return models;
    const Rows received = models.clone();
    adaptation_.buffers->put_(received, clients_);
    return received;
  }

  Rows adapt(const Rows& models, std::int64_t steps, RowOptimizer& optimizer) override {
    require(steps >= 1, "an adaptation takes a step");
    const Rows adapted = one_each(models);
    adaptation_.trainer.adapt_(adapted, clients_, adaptation_.round, steps, optimizer,
                               optimizer.columns());
    return adapted;
  }

  Rows adapt(const Rows& models, const Columns& columns) override {
    const Rows adapted = one_each(models);
    adaptation_.trainer.adapt_(adapted, clients_, adaptation_.round, columns);
    return adapted;
  }

 private:
  Rows one_each(const Rows& models) const {
    const auto count = static_cast<std::int64_t>(clients_.size());
    require(models.count() == count || models.count() == 1, "one model per client, or one for all");
    const Rows each = models.count() == count ? models.clone() : models.replicate(count);
    if (adaptation_.buffers != nullptr) adaptation_.buffers->put_(each, clients_);
    return each;
  }

  Adaptation adaptation_;
  std::span<const std::int64_t> clients_;
};

/// Scores the models given for some of a shard's clients.
class ScoringBlock final : public AdaptingBlock {
 public:
  /// `training` has the clients' training samples; their scores begin at place `first`.
  ScoringBlock(Evaluator& evaluator, const Shard& training, const Adaptation& adaptation,
               std::span<const std::int64_t> clients, std::size_t first,
               std::span<ClientScores* const> scores)
      : AdaptingBlock(adaptation, clients),
        evaluator_(evaluator),
        training_(training),
        first_(first),
        scores_(scores) {}

  void evaluate(const Rows& models) override {
    require(models.count() == static_cast<std::int64_t>(clients().size()), "one model per client");
    for (ClientScores* scores : scores_) {
      if (scores->shard == nullptr) continue;
      std::ranges::copy(evaluator_.each_own(models, *scores->shard, clients()),
                        scores->personal.begin() + static_cast<std::ptrdiff_t>(first_));
    }
  }

  void evaluate(const Rows& models,
                const std::function<Classifier(std::int64_t, const Embedded&)>& fit) override {
    require(models.count() == static_cast<std::int64_t>(clients().size()), "one model per client");
    for (std::size_t c = 0; c < clients().size(); ++c) {
      const auto place = static_cast<std::int64_t>(c);
      const Rows model = models.narrow(place);
      const std::int64_t client = clients()[c];
      const Classifier classify = fit(place, evaluator_.embed_training(model, training_, client));
      for (ClientScores* scores : scores_) {
        if (scores->shard == nullptr) continue;
        const Embedded samples = evaluator_.embed_test(model, *scores->shard, client);
        const Tensor logits = classify(samples.values);
        const std::int64_t classes = scores->shard->classes();
        if (logits.size(1) != classes) {
          throw std::invalid_argument(concat("a classifier wants an array [n, ", classes,
                                             "], one number of each class of the data, got [n, ",
                                             logits.size(1), "]"));
        }
        scores->personal[first_ + c] = score_of(logits, samples.labels);
      }
    }
  }

 private:
  Evaluator& evaluator_;
  const Shard& training_;
  std::size_t first_;
  std::span<ClientScores* const> scores_;
};

/// Keeps the models given.
class CollectingBlock final : public AdaptingBlock {
 public:
  using AdaptingBlock::AdaptingBlock;
  void evaluate(const Rows& models) override { keep(models); }
  void evaluate(const Rows& models,
                const std::function<Classifier(std::int64_t, const Embedded&)>&) override {
    keep(models);
  }
  /// In host memory.
  const Rows& models() const { return models_; }

 private:
  /// A copy: the method may go on with its rows in the same function.
  void keep(const Rows& models) {
    models_ = {models.values.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true), models.layout};
  }

  Rows models_;
};

}  // namespace

ClientScores::ClientScores(const Shard* samples, std::size_t clients)
    : shard(samples), global(shard == nullptr ? 0 : clients), personal(global) {}

RankEvaluation::RankEvaluation(Evaluator& evaluator, const Shard& shard, const Shard* validation,
                               const Shard* server, std::span<const std::int64_t> clients,
                               const Topology& topology, const Adaptation& adaptation,
                               std::int64_t block_width)
    : evaluator_(evaluator),
      shard_(shard),
      server_(server),
      clients_(clients),
      topology_(topology),
      adaptation_(adaptation),
      block_width_(block_width),
      test_(&shard, clients.size()),
      validation_(validation, clients.size()) {}

void RankEvaluation::global(const Rows& model) {
  record_.global = model.clone();
  for (ClientScores* scores : {&test_, &validation_}) {
    if (scores->shard == nullptr) continue;
    scores->global = scores_of(model, *scores->shard, clients_);
  }
  if (server_ != nullptr) official_ = evaluator_.each_chunk(model, *server_);
}

std::vector<Score> RankEvaluation::scores_of(const Rows& model, const Shard& shard,
                                             std::span<const std::int64_t> clients) {
  if (adaptation_.buffers == nullptr) return evaluator_.each_client(model, shard, clients);
  std::vector<Score> scores;
  const auto width = static_cast<std::size_t>(block_width_);
  for (std::size_t first = 0; first < clients.size(); first += width) {
    const auto some = clients.subspan(first, std::min(width, clients.size() - first));
    const Rows models = model.replicate(static_cast<std::int64_t>(some.size()));
    adaptation_.buffers->put_(models, some);
    std::ranges::copy(evaluator_.each_own(models, shard, some), std::back_inserter(scores));
  }
  return scores;
}

void RankEvaluation::edges(const EdgeRows& models) {
  has_edges_ = true;
  edge_.assign(clients_.size(), Score{});
  for (std::int64_t i = 0; i < models.count(); ++i) {
    std::vector<std::int64_t> members;
    for (const std::int64_t client : topology_.placement().clients_of_edge(models.first + i)) {
      if (std::ranges::binary_search(clients_, client)) members.push_back(client);
    }
    const Rows model = models.rows.narrow(i);
    const std::vector<Score> scores = scores_of(model, shard_, members);
    for (std::size_t m = 0; m < scores.size(); ++m) {
      edge_[std::ranges::lower_bound(clients_, members[m]) - clients_.begin()] = scores[m];
    }
  }
}

void RankEvaluation::each_block(const std::function<void(EvaluationBlock&)>& work) {
  has_personal_ = true;
  const auto width = static_cast<std::size_t>(block_width_);
  const std::array<ClientScores*, 2> scores = {&test_, &validation_};
  for (std::size_t first = 0; first < clients_.size(); first += width) {
    const std::size_t count = std::min(width, clients_.size() - first);
    ScoringBlock block(evaluator_, shard_, adaptation_, clients_.subspan(first, count), first,
                       scores);
    work(block);
  }
}

PersonalCollector::PersonalCollector(Communicator& comm, const Shard& shard, LayoutPtr layout,
                                     at::ScalarType type, const Adaptation& adaptation,
                                     std::int64_t block_width, VisitModels visit)
    : comm_(comm),
      shard_(shard),
      layout_(std::move(layout)),
      type_(type),
      adaptation_(adaptation),
      block_width_(block_width),
      visit_(std::move(visit)) {}

void PersonalCollector::each_block(const std::function<void(EvaluationBlock&)>& work) {
  const std::span<const std::int64_t> clients(shard_.clients());
  // Every rank takes part in as many gathers as the one with the most clients.
  Tensor most = at::full({1}, static_cast<std::int64_t>(clients.size()), at::kLong);
  comm_.max_(most);
  const std::int64_t blocks = (most.item<std::int64_t>() + block_width_ - 1) / block_width_;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::size_t first = std::min(static_cast<std::size_t>(b * block_width_), clients.size());
    const std::size_t count =
        std::min(static_cast<std::size_t>(block_width_), clients.size() - first);
    CollectingBlock block(adaptation_, clients.subspan(first, count));
    if (count > 0) work(block);
    Tensor ids = at::empty({static_cast<std::int64_t>(count)}, at::kLong);
    std::copy_n(clients.begin() + static_cast<std::ptrdiff_t>(first), count,
                ids.data_ptr<std::int64_t>());
    const Tensor rows =
        count > 0 ? block.models().values.contiguous() : at::empty({0, layout_->size()}, type_);
    const Tensor all_ids = comm_.gather(ids, 0);
    const Tensor all_rows = comm_.gather(rows, 0);
    if (comm_.rank() != 0 || all_ids.numel() == 0) continue;
    visit_({all_ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(all_ids.numel())},
           {all_rows, layout_});
  }
}

std::vector<Score> gather_scores(Communicator& comm, const std::vector<Score>& mine) {
  constexpr std::int64_t kNumbers = 5;
  Tensor packed = at::empty({static_cast<std::int64_t>(mine.size()), kNumbers}, at::kDouble);
  auto* values = packed.data_ptr<double>();
  for (const Score& score : mine) {
    for (const double number :
         {score.samples, score.correct, score.loss, score.hits, score.positives}) {
      *values++ = number;
    }
  }
  const Tensor all = comm.gather(packed, 0);
  std::vector<Score> scores;
  for (std::int64_t c = 0; c < all.size(0); ++c) {
    const auto* row = all.const_data_ptr<double>() + kNumbers * c;
    scores.push_back({row[0], row[1], row[2], row[3], row[4]});
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

double mean_over_edges(const std::vector<Score>& scores, const Placement& placement,
                       double Measured::*measure) {
  double sum = 0;
  double edges = 0;
  for (std::int64_t edge = 0; edge < placement.edges(); ++edge) {
    std::vector<Score> of_edge;
    for (const std::int64_t client : placement.clients_of_edge(edge)) {
      of_edge.push_back(scores[static_cast<std::size_t>(client)]);
    }
    const Score all = sum_of(of_edge);
    if (all.samples == 0) continue;
    sum += Measured(all).*measure;
    edges += 1;
  }
  return edges > 0 ? sum / edges : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace fedhpc
