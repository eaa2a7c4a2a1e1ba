#include "fedhpc/training/local_trainer.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/training/loss.hpp"

namespace fedhpc {

LocalTrainer::LocalTrainer(const Model& model, const Shard& shard, const TrainOptions& options,
                           std::uint64_t seed)
    : model_(model),
      shard_(shard),
      options_(options),
      seed_(seed),
      optimizer_(options.step_rule(), model.layout()) {}

std::int64_t LocalTrainer::steps(std::int64_t client) const {
  const std::int64_t samples = shard_.train_count(client);
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
  const bool fits =
      labels_.defined() && labels_.size(0) >= clients && activations_.input().scalar_type() == type;
  if (fits) return;
  const std::int64_t batch = batch_capacity();
  activations_ = model_.make_activations(clients, batch, type, Use::Training);
  labels_ = at::empty({clients, batch}, at::kLong);
  loss_.resize(static_cast<std::size_t>(clients));
  if (!optimizer_.rule().is_plain()) arena_ = at::empty({clients, model_.layout()->size()}, type);
}

void LocalTrainer::step_plain_(const Tensor& weights, const Activations& stack, const Run& run,
                               const LocalWork& work) const {
  // w <- w - lr g, fused into the products that make g
  if (work.mu == 0) {
    model_.backward(weights, stack, {.rows = weights, .scale = -options_.lr, .keep = 1});
    return;
  }
  // w <- w - lr (g + mu (w - c)) = (1 - lr mu) w - lr g + lr mu c
  const double pull = options_.lr * work.mu;
  model_.backward(weights, stack, {.rows = weights, .scale = -options_.lr, .keep = 1 - pull});
  add_columns_(weights, work.centre.values.narrow(0, run.first, run.count), pull, *model_.layout(),
               Tag::Trainable);
}

void LocalTrainer::train_run(const Tensor& rows, const Run& run, const LocalWork& work) {
  const bool whole =
      run.count == activations_.input().size(0) && run.batch == activations_.input().size(1);
  const Activations stack =
      whole ? activations_ : activations_.narrow(run.first, run.count, run.batch);
  const Tensor labels =
      whole ? labels_ : labels_.narrow(0, run.first, run.count).narrow(1, 0, run.batch);
  const Tensor weights = whole ? rows : rows.narrow(0, run.first, run.count);
  model_.forward(weights, stack);
  std::fill_n(loss_.begin(), run.count, 0.0);
  softmax_cross_entropy(stack.logits(), labels, stack.logit_gradient(), loss_.data());
  if (optimizer_.rule().is_plain()) {
    step_plain_(weights, stack, run, work);
  } else {
    const Tensor gradients = arena_.narrow(0, 0, rows.size(0));
    const Tensor of_run = gradients.narrow(0, run.first, run.count);
    model_.backward(weights, stack, {.rows = of_run, .scale = 1, .keep = 0});
    if (work.mu > 0) {  // g <- g + mu (w - c)
      add_difference_(of_run, weights, work.centre.values.narrow(0, run.first, run.count), work.mu,
                      *model_.layout(), Tag::Trainable);
    }
    optimizer_.step_(rows, gradients, run.first, run.count);
  }
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

std::int64_t LocalTrainer::gather(Course& course, std::int64_t c, const DrawKey& key) {
  const std::span<const std::int64_t> positions = course.batches.next();
  const auto size = static_cast<std::int64_t>(positions.size());
  std::vector<Crop> crops;
  if (shard_.augment() == Augment::CropFlip) crops = draw_crops(key, size);
  shard_.gather_train(course.client, positions, c, activations_.input(), labels_, crops);
  return size;
}

std::vector<TrainStatistics> LocalTrainer::train_(Rows& rows, std::span<const std::int64_t> clients,
                                                  std::int64_t round, const LocalWork& work) {
  const auto count = static_cast<std::int64_t>(clients.size());
  require(rows.count() == count, "one row per client is trained");
  require(work.mu == 0 || work.centre.count() == count, "one centre per client");
  reserve(count, rows.values.scalar_type());
  optimizer_.reset(count, rows.values.scalar_type());

  const std::int64_t pass = work.pass.value_or(0);
  std::vector<Course> courses;
  std::int64_t last_step = 0;
  for (const std::int64_t client : clients) {
    courses.push_back(start_course(client, round, pass));
    last_step = std::max(last_step, courses.back().steps);
  }
  std::vector<TrainStatistics> statistics(clients.size());
  std::vector<std::int64_t> batch(clients.size());  // 0: the client has run out of steps
  for (std::int64_t step = 0; step < last_step; ++step) {
    for (std::size_t c = 0; c < clients.size(); ++c) {
      const bool goes_on = step < courses[c].steps;
      const DrawKey key = crop_key(seed_, round, clients[c], pass, step);
      batch[c] = goes_on ? gather(courses[c], static_cast<std::int64_t>(c), key) : 0;
    }
    for (std::int64_t first = 0; first < count;) {
      const std::int64_t size = batch[static_cast<std::size_t>(first)];
      std::int64_t end = first + 1;
      while (end < count && batch[static_cast<std::size_t>(end)] == size) ++end;
      if (size > 0) {
        train_run(rows.values, {.first = first, .count = end - first, .batch = size}, work);
        for (std::int64_t c = first; c < end; ++c) {
          statistics[c].loss += loss_[static_cast<std::size_t>(c - first)];
          statistics[c].samples += static_cast<double>(size);
        }
      }
      first = end;
    }
  }
  return statistics;
}

}  // namespace fedhpc
