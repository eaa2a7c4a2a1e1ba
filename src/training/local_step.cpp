#include "fedhpc/training/local_step.hpp"

#include <algorithm>
#include <exception>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/models/row_measures.hpp"
#include "fedhpc/training/loss.hpp"

#include "training/row_memory.hpp"

namespace fedhpc {

namespace {

/// Puts the buffers of some rows back when it goes, unless an exception is unwinding.
class KeptBuffers {
 public:
  KeptBuffers(const Tensor& rows, const Layout& layout) {
    for (const auto& [begin, end] : layout.ranges(Tag::Buffer)) {
      const Tensor columns = rows.narrow(1, begin, end - begin);
      columns_.push_back(columns);
      values_.push_back(columns.clone());
    }
  }
  ~KeptBuffers() noexcept(false) {
    if (std::uncaught_exceptions() > uncaught_) return;
    for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i].copy_(values_[i]);
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  int uncaught_ = std::uncaught_exceptions();
  std::vector<Tensor> columns_;
  std::vector<Tensor> values_;
};

/// The first `count` rows of a buffer of this width, stride and type, made of zeros when there was
/// none.
Tensor room_for(Tensor& buffer, std::int64_t count, std::int64_t columns, std::int64_t stride,
                const at::TensorOptions& options) {
  const bool fits = buffer.defined() && buffer.size(0) >= count && buffer.size(1) == columns &&
                    buffer.stride(0) == stride && buffer.dtype() == options.dtype();
  if (!fits) buffer = at::zeros({count, stride}, options).narrow(1, 0, columns);
  return buffer.narrow(0, 0, count);
}

Tensor room_beside(Tensor& buffer, const Tensor& rows) {
  return room_for(buffer, rows.size(0), rows.size(1), stride_beside(rows), rows.options());
}

}  // namespace

Tensor StepWorkspace::gradients(const Tensor& rows) {
  return room_beside(arena, rows);  // zeros: buffers have no gradient
}

LocalStep::LocalStep(const Model& model, const LayerDraws& draws, std::vector<BatchRun> runs,
                     StepWorkspace& workspace, std::vector<TrainStatistics>& statistics,
                     const std::function<void(std::int64_t)>& gather)
    : model_(model),
      draws_(draws),
      runs_(std::move(runs)),
      clients_(std::ssize(draws.clients)),
      workspace_(workspace),
      statistics_(statistics),
      gather_(gather) {}

std::int64_t LocalStep::active() const {
  std::int64_t count = 0;
  for (const BatchRun& run : runs_) {
    if (run.first != count) {
      throw Error(
          "clients with a batch are not the block's first in each_batch with train.stragglers; go "
          "through them by each_rate");
    }
    count += run.count;
  }
  return count;
}

double LocalStep::loss_so_far(std::int64_t c) const {
  const Tensor& on_device = workspace_.losses;  // undefined on the host
  return on_device.defined() ? on_device[c].item<double>()
                             : static_cast<double>(statistics_[static_cast<std::size_t>(c)].loss);
}

double LocalStep::counted_so_far(std::int64_t c) const {
  const Tensor& on_device = workspace_.counts;
  return on_device.defined()
             ? on_device[c].item<double>()
             : static_cast<double>(statistics_[static_cast<std::size_t>(c)].samples);
}

std::int64_t LocalStep::samples(std::int64_t c) const {
  for (const BatchRun& run : runs_) {
    if (run.first <= c && c < run.first + run.count) return run.batch;
  }
  return 0;
}

void LocalStep::each_rate(
    const std::function<void(std::int64_t, std::int64_t, double)>& work) const {
  for (std::size_t first = 0; first < runs_.size();) {
    std::size_t next = first;
    std::int64_t count = 0;
    for (; next < runs_.size() && runs_[next].rate == runs_[first].rate &&
           runs_[next].first == runs_[first].first + count;
         ++next) {
      count += runs_[next].count;
    }
    work(runs_[first].first, count, runs_[first].rate);
    first = next;
  }
}

namespace {

/// What the optimizer's rate is multiplied with, where train.lr is multiplied with `rate`.
double rate_of(const RowOptimizer& optimizer, double rate) {
  return optimizer.rule().scheduled ? rate : 1;
}

}  // namespace

void LocalStep::step_(const Tensor& rows, const Tensor& gradients, RowOptimizer& optimizer) const {
  each_rate([&](std::int64_t first, std::int64_t count, double rate) {
    optimizer.step_(rows, optimizer.clipped(gradients, first, count), first, count,
                    rate_of(optimizer, rate));
  });
}

Rows LocalStep::active(const Rows& rows) const {
  return {rows.values.narrow(0, 0, active()), rows.layout};
}

void LocalStep::fetch(std::int64_t draw) {
  if (draw == draw_) return;
  gather_(draw);
  draw_ = draw;
}

void LocalStep::take_loss(const BatchRun& run, const Activations& stack) {
  const Tensor& all = workspace_.targets;
  const bool whole = run.count == all.size(0) && run.batch == all.size(1);
  const Tensor targets = whole ? all : all.narrow(0, run.first, run.count).narrow(1, 0, run.batch);
  if (on_device(stack.logits())) {
    const Tensor& sums = counted_ ? workspace_.other_losses : workspace_.losses;
    const Tensor& counts = counted_ ? workspace_.other_counts : workspace_.counts;
    workspace_.loss.take(stack.logits(), targets, stack.logit_gradient(),
                         sums.narrow(0, run.first, run.count),
                         counts.defined() ? counts.narrow(0, run.first, run.count) : counts);
    return;
  }
  std::fill_n(workspace_.run_losses.begin(), run.count, 0.0);
  std::fill_n(workspace_.run_counts.begin(), run.count, 0.0);
  workspace_.loss.take(stack.logits(), targets, stack.logit_gradient(),
                       workspace_.run_losses.data(), workspace_.run_counts.data());
  if (counted_) return;
  for (std::int64_t c = 0; c < run.count; ++c) {
    TrainStatistics& of_client = statistics_[static_cast<std::size_t>(run.first + c)];
    of_client.loss += workspace_.run_losses[static_cast<std::size_t>(c)];
    if (workspace_.loss.of_sequences()) {
      of_client.samples += workspace_.run_counts[static_cast<std::size_t>(c)];
    }
  }
}

void LocalStep::take_loss(const BatchRun& run, const Activations& stack,
                          const EmbeddingLoss& loss) {
  if (!workspace_.loss.of_labels()) {
    throw ConfigError(
        "a loss of embeddings reads one class label of each sample, which is not what these data "
        "and train.loss have; give data of classes");
  }
  const Tensor embedded = on_host(model_.embedding(stack)).to(at::kDouble).contiguous();
  const Tensor labels =
      on_host(workspace_.targets.narrow(0, run.first, run.count).narrow(1, 0, run.batch))
          .contiguous();
  const Tensor gradients = at::zeros_like(embedded);  // what a loss does not fill is no gradient
  const Tensor losses = at::empty({run.count}, at::kDouble);
  for (std::int64_t c = 0; c < run.count; ++c) {
    const std::span<const std::int64_t> of_client(
        labels.const_data_ptr<std::int64_t>() + c * run.batch, static_cast<std::size_t>(run.batch));
    losses.data_ptr<double>()[c] =
        static_cast<double>(run.batch) * loss(run.first + c, embedded[c], of_client, gradients[c]);
  }
  const Tensor& back = model_.embedding_gradient(stack);
  if (back.defined()) back.copy_(gradients.to(back.scalar_type()));
  if (counted_) return;
  if (on_device(stack.logits())) {
    workspace_.losses.narrow(0, run.first, run.count).add_(losses.to(workspace_.losses.device()));
    return;
  }
  for (std::int64_t c = 0; c < run.count; ++c) {
    statistics_[static_cast<std::size_t>(run.first + c)].loss += losses.const_data_ptr<double>()[c];
  }
}

void LocalStep::count(const BatchRun& run, const Columns& columns) {
  const auto values =
      static_cast<double>(run.batch * model_.layout()->count(Tag::Trainable, columns));
  for (std::int64_t c = run.first; c < run.first + run.count; ++c) {
    if (!solved_.empty() && solved_[static_cast<std::size_t>(c)]) continue;
    TrainStatistics& of_client = statistics_[static_cast<std::size_t>(c)];
    of_client.gradient_values += values;
    ++of_client.gradients;
    // Of sequences the loss counts.
    if (!counted_ && !workspace_.loss.of_sequences()) {
      of_client.samples += static_cast<double>(run.batch);
    }
  }
}

Activations LocalStep::of_run(const Activations& all, const BatchRun& run) {
  const bool whole = run.count == all.input().size(0) && run.batch == all.input().size(1);
  return whole ? all : all.narrow(run.first, run.count, run.batch);
}

void LocalStep::differentiate(const Tensor& rows, const BatchRun& run, const GradientSink& sink,
                              const EmbeddingLoss* loss) {
  Activations stack = of_run(workspace_.activations, run);
  stack.draws = draws_.of_clients(run.first, run.count);
  stack.draws.pass += kPassesPerDraw * draw_;
  const Tensor weights = rows.narrow(0, run.first, run.count);
  if (counted_ || !sink.columns.hold(Tag::Buffer)) {
    const KeptBuffers kept(weights, *model_.layout());
    model_.forward(weights, stack);
  } else {
    model_.forward(weights, stack);
  }
  if (loss == nullptr) {
    take_loss(run, stack);
    backward(weights, run, stack, sink);
  } else {
    take_loss(run, stack, *loss);
    model_.backward_below_head(weights, stack, sink);
  }
  count(run, sink.columns);
}

namespace {

/// Throws ConfigError unless it is known what the model's head sees.
void require_embedding(const Model& model) {
  if (model.has_embedding()) return;
  throw ConfigError(
      "what the head of this model sees cannot be told; take another model or method");
}

}  // namespace

void LocalStep::backward(const Tensor& weights, const BatchRun& run, const Activations& stack,
                         const GradientSink& sink) const {
  if (term_ == nullptr) return model_.backward(weights, stack, sink);
  model_.backward_head(weights, stack, sink);
  const Tensor& gradient = model_.embedding_gradient(stack);
  if (gradient.defined()) (*term_)(run, model_.embedding(stack), gradient);
  model_.backward_below_head(weights, stack, sink);
}

Tensor LocalStep::embedding(const Rows& at) {
  require(at.count() == clients_, "one row per client");
  require_embedding(model_);
  fetch(0);
  const Activations& training = workspace_.activations;
  Activations& all = workspace_.evaluation;
  if (all.values.empty()) {
    const Tensor& input = training.input();
    all = model_.make_activations(input.size(0), input.size(1), input.options(), Use::Evaluation,
                                  training.arithmetic);
    all.values.front() = input;
  }
  const Tensor& values = model_.embedding(all);
  const Tensor result = at::empty({clients_, values.size(1), values.size(2)}, values.options());
  for (const BatchRun& run : runs_) {
    const Activations stack = of_run(all, run);
    model_.forward(at.values.narrow(0, run.first, run.count), stack);
    result.narrow(0, run.first, run.count).narrow(1, 0, run.batch).copy_(model_.embedding(stack));
  }
  return result;
}

Tensor LocalStep::gradient(const Rows& at, const Penalty& penalty, std::int64_t draw) {
  return gradient(at, penalty, draw, {});
}

Tensor LocalStep::gradient(const Rows& at, const Penalty& penalty, std::int64_t draw,
                           const Columns& columns) {
  require(at.count() == clients_, "one row per client");
  fetch(draw);
  const Tensor gradients = workspace_.gradients(at.values);
  for (const BatchRun& run : runs_) {
    const Tensor of_run = gradients.narrow(0, run.first, run.count);
    differentiate(at.values, run, {.rows = of_run, .scale = 1, .keep = 0, .columns = columns});
    if (penalty.any())
      add_gradient_(gradients, at, penalty, run.first, run.count, workspace_.constants);
  }
  counted_ = true;
  ++draws_.call;
  return gradients;
}

Tensor LocalStep::gradient_below_head(const Rows& at, const EmbeddingLoss& loss) {
  require(at.count() == clients_, "one row per client");
  require_embedding(model_);
  fetch(0);
  const Tensor gradients = workspace_.gradients(at.values);
  for (const BatchRun& run : runs_) {
    const Tensor of_run = gradients.narrow(0, run.first, run.count);
    differentiate(at.values, run,
                  {.rows = of_run, .scale = 1, .keep = 0, .columns = {.without = Tag::Head}},
                  &loss);
  }
  counted_ = true;
  ++draws_.call;
  return gradients;
}

Tensor LocalStep::direction(const Rows& at, const RowOptimizer& optimizer, const Penalty& penalty) {
  const Tensor gradients = gradient(at, {}, 0, optimizer.columns());
  for (const BatchRun& run : runs_) {
    optimizer.clip_(gradients, run.first, run.count);
    if (penalty.any())
      add_gradient_(gradients, at, penalty, run.first, run.count, workspace_.constants);
  }
  return gradients;
}

void LocalStep::descend_plain_(const Rows& rows, const RowOptimizer& optimizer,
                               const Penalty& penalty) {
  fetch(0);
  // w <- w - lr (g + mu (w - c)). With p = lr mu that is w' = w - lr / (1 - p) g, then
  // w <- w' + p (c - w'): exactly w where g = 0 and w = c, so that updates of 0 are 0.
  for (const BatchRun& run : runs_) {
    const double lr = optimizer.rule().lr * rate_of(optimizer, run.rate);
    const double pull = lr * penalty.mu;
    const Tensor of_run = rows.values.narrow(0, run.first, run.count);
    differentiate(
        rows.values, run,
        {.rows = of_run, .scale = -lr / (1 - pull), .keep = 1, .columns = optimizer.columns()});
    if (penalty.mu == 0) continue;
    approach_({of_run, rows.layout},
              {penalty.centre.values.narrow(0, run.first, run.count), rows.layout}, pull);
  }
  counted_ = true;
  ++draws_.call;
}

void LocalStep::descend_pulled_(const Rows& rows, const RowOptimizer& optimizer,
                                const Penalty& penalty) {
  fetch(0);
  const Tensor gradients = workspace_.gradients(rows.values);
  const Tensor& centres = penalty.centre.values;
  const bool by_layers = penalty.gamma == 0 && centres.sizes() == rows.values.sizes() &&
                         centres.scalar_type() == rows.values.scalar_type();
  for (const BatchRun& run : runs_) {
    const auto of_run = [&](const Tensor& all) { return all.narrow(0, run.first, run.count); };
    PulledStep step{.centres = by_layers ? of_run(centres) : Tensor(),
                    .lr = optimizer.rule().lr * rate_of(optimizer, run.rate),
                    .mu = penalty.mu};
    differentiate(rows.values, run,
                  {.rows = of_run(gradients),
                   .scale = 1,
                   .keep = 0,
                   .columns = optimizer.columns(),
                   .step = by_layers ? &step : nullptr});
    fedhpc::descend_(rows, gradients, step.lr, penalty, run.first, run.count, workspace_.constants,
                     step.taken);
  }
  counted_ = true;
  ++draws_.call;
}

bool LocalStep::is_fused(const StepRule& rule, const Penalty& penalty) {
  // A step that nearly reaches the centre cannot be taken in two parts without losing digits.
  constexpr double kFarthest = 0.5;
  return rule.is_plain() && penalty.gamma == 0 && rule.lr * penalty.mu <= kFarthest;
}

void LocalStep::descend_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty) {
  require(rows.count() == clients_, "one row per client");
  require(penalty.mu == 0 || penalty.centre.count() == clients_, "one centre per client");
  require(!penalty.any() || optimizer.columns().all(), "a penalty is of whole rows");
  if (is_fused(optimizer.rule(), penalty)) return descend_plain_(rows, optimizer, penalty);
  if (optimizer.rule().is_plain()) return descend_pulled_(rows, optimizer, penalty);
  const Tensor gradients = direction(rows, optimizer, penalty);
  for (const BatchRun& run : runs_) {
    optimizer.step_(rows.values, gradients, run.first, run.count, rate_of(optimizer, run.rate));
  }
}

void LocalStep::descend_(const Rows& rows, RowOptimizer& optimizer, const EmbeddingTerm& term) {
  require(optimizer.columns().all(), "a term is of whole rows");
  require_embedding(model_);
  struct Lent {  // until the end, also that by an exception of the term
    const EmbeddingTerm*& place;
    ~Lent() { place = nullptr; }
  } const lent{term_ = &term};
  descend_(rows, optimizer, Penalty{});
}

void LocalStep::descend_(const Rows& u, RowMap& map, RowOptimizer& optimizer, const Rows& base) {
  require(u.count() == clients_ && u.layout == map.factors(), "one row of factors per client");
  const bool has_base = base.values.defined();
  require(!has_base || base.count() == clients_, "one model per client to add factors to");
  const std::int64_t columns = map.full()->size();
  const Rows models{room_for(workspace_.models, clients_, columns, columns, u.values.options()),
                    map.full()};
  const Rows gradients{room_beside(workspace_.factor_gradients, u.values), u.layout};
  const auto of_run = [](const Rows& rows, const BatchRun& run) {
    return Rows{rows.values.narrow(0, run.first, run.count), rows.layout};
  };
  for (const BatchRun& run : runs_) {
    map.expand_(of_run(u, run), of_run(models, run));
    if (has_base) map.add_(of_run(base, run), of_run(models, run));
  }
  const Rows of_weights{gradient(models), models.layout};
  for (const BatchRun& run : runs_) {
    const Rows moved = of_run(u, run);
    map.pullback_(moved, of_run(of_weights, run), of_run(gradients, run));
    map.copy_passed_(of_run(models, run), moved, Tag::Buffer);
    optimizer.clip_(gradients.values, run.first, run.count);
    optimizer.step_(u.values, gradients.values, run.first, run.count, rate_of(optimizer, run.rate));
  }
}

// On a device the host has to wait for the lengths: who goes on is decided here.
bool LocalStep::approach_minimum_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                                  double accuracy) {
  const Tensor gradients = direction(rows, optimizer, penalty);
  const std::vector<double> squares =
      squared_lengths(active({gradients, rows.layout}), optimizer.columns()).values();
  bool moved = false;
  for (const BatchRun& run : runs_) {
    for (std::int64_t c = run.first; c < run.first + run.count; ++c) {
      const auto place = static_cast<std::size_t>(c);
      if (squares[place] <= accuracy) solved_[place] = true;
      if (solved_[place]) continue;  // for good: with dropout its next gradient is another one
      optimizer.step_(rows.values, gradients, c, 1, rate_of(optimizer, run.rate));
      moved = true;
    }
  }
  return moved;
}

void LocalStep::minimise_(const Rows& rows, RowOptimizer& optimizer, const Penalty& penalty,
                          const InnerSolve& inner) {
  require(!penalty.any() || optimizer.columns().all(), "a penalty is of whole rows");
  optimizer.reset(rows.values, optimizer.columns());
  if (inner.accuracy > 0) solved_.assign(static_cast<std::size_t>(clients_), false);
  for (std::int64_t k = 0; k < inner.steps; ++k) {
    if (inner.accuracy == 0) {
      descend_(rows, optimizer, penalty);
    } else if (!approach_minimum_(rows, optimizer, penalty, inner.accuracy)) {
      break;
    }
  }
  solved_.clear();
}

}  // namespace fedhpc
