#include "fedhpc/training/step_taker.hpp"

#include "training/row_memory.hpp"

namespace fedhpc {

void StepTaker::stay_near_device() {
  while (std::ssize(ahead_) >= kPassesAhead) {
    ahead_.front()->wait();
    ahead_.pop_front();
  }
}

Rows StepTaker::held(Rows& memory, const Rows& rows) {
  if (!on_device_) return rows;
  const bool fits = memory.values.defined() && memory.count() >= rows.count() &&
                    memory.layout == rows.layout &&
                    memory.values.scalar_type() == rows.values.scalar_type();
  if (!fits) {
    memory = {rows_in_whole_lines(rows.count(), rows.layout->size(), rows.values.options()),
              rows.layout};
    forget();
  }
  const Rows part = memory.narrow(0, rows.count());
  part.values.copy_(rows.values);
  return part;
}

void StepTaker::begin(const PlannedBatches& planned, Steps steps,
                      std::optional<StepGraphs::Key> repeated) {
  planned_ = &planned;
  alike_ = on_device_ && wanted_ && steps == Steps::Alike;
  key_ = std::move(repeated);
  of_pass_.clear();
  if (!alike_) return;
  std::map<std::vector<BatchRun>, std::int64_t> with_runs;
  for (std::int64_t step = 0; step < planned.steps(); ++step) ++with_runs[planned.runs(0, step)];
  (key_ ? repeated_ : of_pass_).begin(std::move(with_runs));
}

void StepTaker::take(std::int64_t number, const StepGraphs::Call& call,
                     std::vector<TrainStatistics>& statistics) {
  if (!alike_) return call(statistics);
  const std::vector<BatchRun>& runs = planned_->runs(0, number);
  if (key_) {
    key_->runs = runs;
    repeated_.take(*key_, call, statistics);
  } else {
    of_pass_.take({.runs = runs, .numbers = {}, .sizes = {}, .addresses = {}}, call, statistics);
  }
}

void StepTaker::end(const Tensor& losses, const Tensor& counts,
                    std::vector<TrainStatistics>& statistics) {
  if (!on_device_) return;
  of_pass_.clear();
  const auto deferred = std::make_shared<DeferredNumbers>(losses);
  for (std::size_t c = 0; c < statistics.size(); ++c) statistics[c].loss = {deferred, c};
  if (counts.defined()) {
    const auto counted = std::make_shared<DeferredNumbers>(counts);
    for (std::size_t c = 0; c < statistics.size(); ++c) statistics[c].samples = {counted, c};
  }
  ahead_.push_back(deferred);
}

}  // namespace fedhpc
