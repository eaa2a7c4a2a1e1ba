#include "fedhpc/training/local_trainer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"

namespace fedhpc {

namespace {

/// How LibTorch's own kernels on a device take float32 factors, for the length of a pass.
class PrecisionScope {
 public:
  PrecisionScope(bool active, Precision precision) : active_(active) {
    if (active_) device_kernels<MathKernels>().use_precision(precision);
  }
  ~PrecisionScope() {
    if (active_) device_kernels<MathKernels>().use_precision(Precision::Fp32);
  }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  bool active_;
};

const void* address(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

}  // namespace

LocalTrainer::LocalTrainer(const Model& model, const Shard& shard, const TrainOptions& options,
                           const Context& context)
    : model_(model),
      shard_(shard),
      options_(options),
      context_(context),
      batches_(*model.layout(), shard, options, context),
      optimizer_(options.step_rule(), model.layout()),
      taker_(context.device) {
  workspace_.loss =
      Loss(options.loss, shard.targets(), shard.classes()).of_outputs(model.classes());
  require(context.device == shard.device(), "a shard lies where its clients are trained");
}

std::int64_t LocalTrainer::workspace_bytes(std::int64_t clients) const {
  const StepRule& rule = optimizer_.rule();
  const std::int64_t rows = rule.is_plain() ? 0 : 1 + rule.state_rows();
  const at::TensorOptions nowhere = context_.options().device(at::kMeta);
  return model_.make_activations(clients, batches_.capacity(), nowhere, Use::Training).bytes() +
         rows * clients * model_.layout()->size() *
             static_cast<std::int64_t>(c10::elementSize(context_.type));
}

void LocalTrainer::reserve(std::int64_t clients) {
  if (workspace_.targets.defined() && workspace_.targets.size(0) >= clients) return;
  const std::int64_t batch = batches_.capacity();
  const at::TensorOptions options = context_.options();
  workspace_.evaluation = {};  // it shares the input
  workspace_.activations =
      model_.make_activations(clients, batch, options, Use::Training,
                              {.precision = options_.precision, .summation = context_.summation});
  const Targets& targets = shard_.targets();
  std::vector<std::int64_t> shape{clients, batch};
  if (targets.kind != Targets::Kind::Label) shape.push_back(targets.count);
  workspace_.targets = at::empty(shape, options.dtype(shard_.target_type()));
  workspace_.run_losses.resize(static_cast<std::size_t>(clients));
  workspace_.run_counts.resize(static_cast<std::size_t>(clients));
  if (context_.device.is_cpu()) return;
  taker_.forget();
  workspace_.losses = at::zeros({clients}, options.dtype(at::kDouble));
  workspace_.other_losses = at::zeros_like(workspace_.losses);
  if (!workspace_.loss.of_sequences()) return;
  workspace_.counts = at::zeros_like(workspace_.losses);
  workspace_.other_counts = at::zeros_like(workspace_.losses);
}

std::vector<TrainStatistics> LocalTrainer::each_step(std::span<const std::int64_t> clients,
                                                     const BatchSource::Pass& pass,
                                                     const std::function<void(LocalStep&)>& take,
                                                     Steps steps,
                                                     std::optional<StepGraphs::Key> repeated) {
  const bool device = !context_.device.is_cpu();
  const DeviceScope scope(device, "local steps");
  const PrecisionScope precision(device, options_.precision);
  const auto count = static_cast<std::int64_t>(clients.size());
  taker_.stay_near_device();
  reserve(count);
  const Tensor losses = device ? workspace_.losses.narrow(0, 0, count).zero_() : Tensor();
  const Tensor counts = device && workspace_.loss.of_sequences()
                            ? workspace_.counts.narrow(0, 0, count).zero_()
                            : Tensor();
  batches_.begin(clients, pass, workspace_);
  if (repeated && batches_.steps() > 0) {
    repeated->addresses.push_back(address(batches_.planned().buffer()));
  }
  // What layers draw for a step is the host's, so that no other step repeats it.
  taker_.begin(batches_.planned(), model_.draws() ? Steps::Any : steps, std::move(repeated));

  LayerDraws draws{
      .seed = context_.seed, .round = pass.round, .pass = pass.drawn_number(), .clients = clients};
  const std::function<void(std::int64_t)> gather = [&](std::int64_t draw) {
    batches_.gather(draws.step, draw);
  };
  const StepGraphs::Call call = [&](std::vector<TrainStatistics>& counted) {
    LocalStep step(model_, draws, batches_.gather(draws.step, 0), workspace_, counted, gather);
    take(step);
    batches_.advance();
  };
  std::vector<TrainStatistics> statistics(clients.size());
  for (; draws.step < batches_.steps(); ++draws.step) taker_.take(draws.step, call, statistics);
  taker_.end(losses, counts, statistics);
  return statistics;
}

std::vector<TrainStatistics> LocalTrainer::each_step(std::span<const std::int64_t> clients,
                                                     std::int64_t round, std::int64_t pass,
                                                     const std::function<void(LocalStep&)>& take,
                                                     Steps steps, std::int64_t count) {
  return each_step(clients, {.round = round, .number = pass, .steps = count}, take, steps);
}

std::vector<TrainStatistics> LocalTrainer::each_batch(std::span<const std::int64_t> clients,
                                                      std::int64_t round, std::int64_t pass,
                                                      Share share,
                                                      const std::function<void(LocalStep&)>& take) {
  require(0 < share.of && share.of <= 1, "a share of the samples is a part of them");
  return each_step(clients, {.round = round, .number = pass, .share = share}, take, Steps::Any);
}

StepGraphs::Key LocalTrainer::key_of(const Rows& rows, const Penalty& penalty) {
  const StepRule& rule = optimizer_.rule();
  const Columns& columns = optimizer_.columns();
  StepGraphs::Key key{.runs = {},
                      .numbers = {rule.lr, rule.momentum, rule.weight_decay, rule.clip_norm,
                                  penalty.mu, penalty.gamma, penalty.rho},
                      .sizes = {rows.count(), static_cast<std::int64_t>(rule.kind),
                                static_cast<std::int64_t>(columns.with),
                                static_cast<std::int64_t>(columns.without)},
                      .addresses = optimizer_.memory()};
  if (!LocalStep::is_fused(rule, penalty)) {
    key.addresses.push_back(address(workspace_.gradients(rows.values)));
  }
  return key;
}

std::vector<TrainStatistics> LocalTrainer::train_(Rows& rows, std::span<const std::int64_t> clients,
                                                  std::int64_t round, const LocalWork& work) {
  const auto count = static_cast<std::int64_t>(clients.size());
  require(rows.values.scalar_type() == context_.type, "rows are of the run's number type");
  const BatchSource::Pass pass{.round = round, .number = work.pass.value_or(0)};
  const Moved these{.round = round, .clients = {clients.begin(), clients.end()}};
  Moved& before = work.map != nullptr ? moved_as_factors_ : moved_;
  if (work.goes_on && before != these) {
    throw Error(
        "training goes on with an optimizer that has moved other clients, or the same in another "
        "round: only a later pass over the same clients in the same round goes on");
  }
  before = these;
  if (work.map != nullptr) {
    require(!work.penalty.any() && work.columns.all(), "factors move as a whole, without penalty");
    if (!of_factors_ || of_factors_->layout() != rows.layout) {
      of_factors_.emplace(options_.step_rule(), rows.layout);
    }
    if (work.goes_on) {
      of_factors_->go_on(count, {});
    } else {
      of_factors_->reset(rows.values);
    }
    const auto descend = [&](LocalStep& step) {
      step.descend_(rows, *work.map, *of_factors_, work.base);
    };
    return each_step(clients, pass, descend, Steps::Alike);
  }
  reserve(count);
  const Rows moved = taker_.held(rows);
  if (work.goes_on) {
    optimizer_.go_on(count, work.columns);
  } else {
    optimizer_.reset(moved.values, work.columns);
  }
  Penalty penalty = work.penalty;
  if (penalty.mu != 0) penalty.centre = taker_.held_centres(penalty.centre);
  // Samples on demand lie somewhere else for every block.
  const bool repeated = !context_.device.is_cpu() && !shard_.on_demand();
  const auto descend = [&](LocalStep& step) { step.descend_(moved, optimizer_, penalty); };
  std::vector<TrainStatistics> statistics =
      each_step(clients, pass, descend, Steps::Alike,
                repeated ? std::optional(key_of(moved, penalty)) : std::nullopt);
  if (!moved.values.is_same(rows.values)) rows.values.copy_(moved.values);
  return statistics;
}

void LocalTrainer::adapt_(const Rows& rows, std::span<const std::int64_t> clients,
                          std::int64_t round, const Columns& columns) {
  moved_ = {};
  adapt_(rows, clients, round, 0, optimizer_, columns);
}

void LocalTrainer::adapt_(const Rows& rows, std::span<const std::int64_t> clients,
                          std::int64_t round, std::int64_t steps, RowOptimizer& optimizer,
                          const Columns& columns) {
  require(steps >= 0, "a number of steps is not negative");
  const Rows moved = taker_.held(rows);
  optimizer.reset(moved.values, columns);
  each_step(
      clients, {.round = round, .purpose = Purpose::Evaluate, .steps = steps},
      [&](LocalStep& step) { step.descend_(moved, optimizer); }, Steps::Alike);
  if (!moved.values.is_same(rows.values)) rows.values.copy_(moved.values);
}

}  // namespace fedhpc
