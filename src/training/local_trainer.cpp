#include "fedhpc/training/local_trainer.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
namespace fedhpc {

LocalTrainer::LocalTrainer(const Model& model, const Shard& shard, const TrainOptions& options,
                           std::uint64_t seed)
    : model_(model),
      shard_(shard),
      options_(options),
      seed_(seed),
      optimizer_(options.step_rule(), model.layout()) {}

std::int64_t LocalTrainer::steps_for(std::int64_t samples) const {
  const std::int64_t in_epoch =
      BatchCursor::num_batches_per_epoch(samples, options_.batch_size, singles());
  if (in_epoch == 0) return 0;
  return options_.local_steps > 0 ? options_.local_steps : options_.local_epochs * in_epoch;
}

SingleBatches LocalTrainer::singles() const {
  return model_.layout()->count(Tag::Norm) > 0 ? SingleBatches::Drop : SingleBatches::Keep;
}

std::int64_t LocalTrainer::batch_capacity() const {
  std::int64_t largest = 1;
  for (const std::int64_t client : shard_.clients()) {
    largest = std::max(largest, shard_.train_count(client));
  }
  return options_.batch_size == 0 ? largest : std::min(options_.batch_size, largest);
}

std::int64_t LocalTrainer::workspace_bytes(std::int64_t clients, at::ScalarType type) const {
  const StepRule& rule = optimizer_.rule();
  const std::int64_t rows = rule.is_plain() ? 0 : 1 + rule.state_rows();
  return model_.make_activations(clients, batch_capacity(), type, Use::Training).bytes() +
         rows * clients * model_.layout()->size() *
             static_cast<std::int64_t>(c10::elementSize(type));
}

void LocalTrainer::reserve(std::int64_t clients, at::ScalarType type) {
  const Tensor& labels = workspace_.labels;
  const bool fits = labels.defined() && labels.size(0) >= clients &&
                    workspace_.activations.input().scalar_type() == type;
  if (fits) return;
  const std::int64_t batch = batch_capacity();
  workspace_.activations = model_.make_activations(clients, batch, type, Use::Training);
  workspace_.labels = at::empty({clients, batch}, at::kLong);
  workspace_.loss.resize(static_cast<std::size_t>(clients));
}

LocalTrainer::Course LocalTrainer::start_course(std::int64_t client, std::int64_t round,
                                                std::int64_t pass) const {
  const BatchPlan plan{.seed = seed_,
                       .round = round,
                       .client = client,
                       .pass = pass,
                       .samples = shard_.train_count(client),
                       .batch_size = options_.batch_size,
                       .singles = singles(),
                       .max_batches = steps(client)};
  return {.client = client, .steps = plan.max_batches, .batches = BatchCursor(plan)};
}

const Shard& LocalTrainer::samples_of(std::span<const std::int64_t> clients) {
  if (!shard_.on_demand()) return shard_;
  std::vector<std::int64_t> ids(clients.begin(), clients.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (!in_hand_ || in_hand_->clients() != ids) in_hand_ = shard_.in_hand(std::move(ids));
  return *in_hand_;
}

std::int64_t LocalTrainer::gather(const Shard& shard, Course& course, std::int64_t c,
                                  const DrawKey& key) {
  const std::span<const std::int64_t> positions = course.batches.next();
  const auto size = static_cast<std::int64_t>(positions.size());
  std::vector<Crop> crops;
  if (shard.augment() == Augment::CropFlip) crops = draw_crops(key, size);
  shard.gather_train(course.client, positions, c, workspace_.activations.input(), workspace_.labels,
                     crops);
  return size;
}

std::vector<BatchRun> LocalTrainer::gather_step(const Shard& shard, std::vector<Course>& courses,
                                                std::int64_t round, std::int64_t pass,
                                                std::int64_t step) {
  std::vector<BatchRun> runs;
  for (std::size_t c = 0; c < courses.size(); ++c) {
    if (step >= courses[c].steps) continue;
    const auto row = static_cast<std::int64_t>(c);
    const DrawKey key = crop_key(seed_, round, courses[c].client, pass, step);
    const std::int64_t size = gather(shard, courses[c], row, key);
    if (!runs.empty() && runs.back().batch == size &&
        runs.back().first + runs.back().count == row) {
      ++runs.back().count;
    } else {
      runs.push_back({.first = row, .count = 1, .batch = size});
    }
  }
  return runs;
}

std::vector<TrainStatistics> LocalTrainer::each_step(std::span<const std::int64_t> clients,
                                                     std::int64_t round, std::int64_t pass,
                                                     at::ScalarType type,
                                                     const std::function<void(LocalStep&)>& take) {
  const auto count = static_cast<std::int64_t>(clients.size());
  reserve(count, type);
  const Shard& samples = samples_of(clients);
  std::vector<Course> courses;
  std::int64_t last_step = 0;
  for (const std::int64_t client : clients) {
    courses.push_back(start_course(client, round, pass));
    last_step = std::max(last_step, courses.back().steps);
  }
  std::vector<TrainStatistics> statistics(clients.size());
  for (std::int64_t number = 0; number < last_step; ++number) {
    LocalStep step(model_, number, gather_step(samples, courses, round, pass, number), count,
                   workspace_, statistics);
    take(step);
  }
  return statistics;
}

std::vector<TrainStatistics> LocalTrainer::train_(Rows& rows, std::span<const std::int64_t> clients,
                                                  std::int64_t round, const LocalWork& work) {
  const at::ScalarType type = rows.values.scalar_type();
  optimizer_.reset(static_cast<std::int64_t>(clients.size()), type);
  return each_step(clients, round, work.pass.value_or(0), type,
                   [&](LocalStep& step) { step.descend_(rows, optimizer_, work.penalty); });
}

}  // namespace fedhpc
