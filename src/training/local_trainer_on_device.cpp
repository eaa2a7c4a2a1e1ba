// Local training on a device: batches planned ahead, steps captured.

#include <algorithm>
#include <map>

#include <ATen/ops/empty_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {

namespace {

/// How LibTorch's own kernels take float32 factors, for the length of a pass.
class PrecisionScope {
 public:
  explicit PrecisionScope(Precision precision) { device_kernels().use_precision(precision); }
  ~PrecisionScope() { device_kernels().use_precision(Precision::Fp32); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;
};

/// `rows` in memory that stays where it is from one block to the next; if it cannot, `moved` is
/// called.
Rows held(Rows& memory, const Rows& rows, const std::function<void()>& moved) {
  const bool fits = memory.values.defined() && memory.count() >= rows.count() &&
                    memory.layout == rows.layout &&
                    memory.values.scalar_type() == rows.values.scalar_type();
  if (!fits) {
    memory = {at::empty_like(rows.values), rows.layout};
    moved();
  }
  const Rows part{memory.values.narrow(0, 0, rows.count()), rows.layout};
  part.values.copy_(rows.values);
  return part;
}

constexpr std::int64_t kWorthACapture = 4;  // steps: one is called, one captured

/// The steps of a pass with the same runs.
struct StepsOfRuns {
  std::int64_t number = 0;
  std::vector<TrainStatistics> counted{};  // by the host, at a step that was called

  void add_to(std::vector<TrainStatistics>& sums) const {
    for (std::size_t c = 0; c < sums.size(); ++c) {
      sums[c].samples += counted[c].samples;
      sums[c].gradient_values += counted[c].gradient_values;
      sums[c].gradients += counted[c].gradients;
    }
  }
};

const void* address(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

}  // namespace

void LocalTrainer::stay_near_device() {
  while (std::ssize(ahead_) >= kPassesAhead) {
    ahead_.front()->wait();
    ahead_.pop_front();
  }
}

std::vector<TrainStatistics> LocalTrainer::each_step_on_device(
    std::span<const std::int64_t> clients, const Pass& pass, at::ScalarType type,
    const std::function<void(LocalStep&)>& take, Steps steps, const StepGraphs::Key* repeated) {
  const DeviceScope range(true, "local steps");
  const PrecisionScope precision(options_.precision);
  const auto count = static_cast<std::int64_t>(clients.size());
  stay_near_device();
  reserve(count, type);
  const Shard& samples = samples_of(clients);
  const std::int64_t last_step = most_steps(clients, pass);
  workspace_.losses.narrow(0, 0, count).zero_();
  planned_.begin(clients, last_step, batch_capacity(), shard_.device());

  const auto plan = [&](std::int64_t draw) {
    while (planned_.draws() <= draw) {
      const Pass drawn = pass_of_draw(pass, planned_.draws());
      std::vector<ClientPass> passes = start_passes(clients, drawn);
      planned_.plan(samples, [&](std::int64_t c, std::int64_t step) {
        return next_batch(samples, passes[static_cast<std::size_t>(c)], drawn, step);
      });
    }
  };
  const auto gather = [&](std::int64_t draw) {
    plan(draw);
    planned_.gather(samples, draw, workspace_.activations.input(), workspace_.labels);
  };
  const std::function<void(std::int64_t)> gather_again = gather;

  std::vector<TrainStatistics> statistics(clients.size());
  if (last_step > 0) plan(0);
  pass_graphs_.clear();
  std::map<std::vector<BatchRun>, StepsOfRuns> of_pass;
  for (std::int64_t n = 0; n < last_step; ++n) ++of_pass[planned_.runs(0, n)].number;
  for (std::int64_t number = 0; number < last_step; ++number) {
    const std::vector<BatchRun>& runs = planned_.runs(0, number);
    const auto call = [&](std::vector<TrainStatistics>& counted) {
      gather(0);
      LocalStep step(model_, number, runs, count, workspace_, counted, gather_again);
      take(step);
      planned_.advance();
    };
    StepsOfRuns& alike = of_pass[runs];
    const auto call_once = [&] {
      alike.counted.assign(clients.size(), {});
      call(alike.counted);
    };
    if (!capture_wanted_ || steps == Steps::Any ||
        (repeated == nullptr && alike.number < kWorthACapture)) {
      call(statistics);
    } else if (repeated == nullptr) {
      pass_graphs_.take({.runs = runs, .numbers = {}, .sizes = {}, .addresses = {}}, call_once);
      alike.add_to(statistics);
    } else {
      StepGraphs::Key key = *repeated;
      key.runs = runs;
      key.addresses.push_back(address(planned_.buffer()));
      graphs_.take(key, call_once);
      LocalStep(model_, number, runs, count, workspace_, statistics, gather_again)
          .count_taken(optimizer_.columns());
    }
  }
  pass_graphs_.clear();
  const auto losses = std::make_shared<DeferredNumbers>(workspace_.losses.narrow(0, 0, count));
  for (std::size_t c = 0; c < statistics.size(); ++c) statistics[c].loss = {losses, c};
  ahead_.push_back(losses);
  return statistics;
}

std::vector<TrainStatistics> LocalTrainer::train_on_device_(Rows& rows,
                                                            std::span<const std::int64_t> clients,
                                                            const Pass& pass,
                                                            const LocalWork& work) {
  const at::ScalarType type = rows.values.scalar_type();
  reserve(rows.count(), type);
  const auto forget = [this] { graphs_.clear(); };
  const Rows moved = held(graph_rows_, rows, forget);
  Penalty penalty = work.penalty;
  if (penalty.mu != 0) penalty.centre = held(graph_centres_, penalty.centre, forget);
  const StepRule& rule = optimizer_.rule();
  const bool needs_arena = !(rule.is_plain() && penalty.gamma == 0);
  if (needs_arena) workspace_.gradients(rows.count(), rows.layout->size(), rows.values.options());
  StepGraphs::Key key{
      .runs = {},
      .numbers = {rule.lr, rule.momentum, rule.weight_decay, penalty.mu, penalty.gamma,
                  penalty.rho},
      .sizes = {rows.count(), static_cast<std::int64_t>(rule.kind),
                static_cast<std::int64_t>(work.columns.with),
                static_cast<std::int64_t>(work.columns.without), static_cast<std::int64_t>(type),
                static_cast<std::int64_t>(ProductsInOrder::live())},
      .addresses = optimizer_.memory()};
  if (needs_arena) key.addresses.push_back(address(workspace_.arena));
  const std::vector<TrainStatistics> statistics = each_step_on_device(
      clients, pass, type, [&](LocalStep& step) { step.descend_(moved, optimizer_, penalty); },
      Steps::Alike,
      shard_.on_demand() ? nullptr : &key);  // whose samples lie somewhere else for every block
  rows.values.copy_(moved.values);
  return statistics;
}

}  // namespace fedhpc
