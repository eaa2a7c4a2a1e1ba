#include "fedhpc/training/step_graphs.hpp"

#include <algorithm>
#include <exception>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

namespace fedhpc {

bool StepGraphs::find_room() {
  if (with_graph_.size() < kMostGraphs) return true;
  const auto oldest = std::ranges::min_element(with_graph_, {}, &Step::last_used);
  if (taken_ - (*oldest)->last_used < kLong) return false;
  (*oldest)->graph.reset();
  with_graph_.erase(oldest);
  return true;
}

bool StepGraphs::capture(Step& of, const std::function<void()>& step) {
  try {
    of.graph = device_kernels().capture(step);
    with_graph_.push_back(&of);
    ++captured_;
    return true;
  } catch (const std::exception& error) {
    possible_ = false;
    // Ranks with cards of one kind meet it alike: one of them is enough.
    run_log().of_rank(run_log().rank() == 0 ? LogLevel::Warning : LogLevel::Debug,
                      concat("local steps are not captured as CUDA graphs: ", error.what()));
    return false;
  }
}

void StepGraphs::clear() {
  with_graph_.clear();
  steps_.clear();
}

void StepGraphs::take(const Key& key, const std::function<void()>& step) {
  if (!possible_) return step();
  ++taken_;
  const auto found = steps_.find(key);
  if (found == steps_.end()) {
    if (steps_.size() == kMostSeen) {  // sizes that do not come again
      std::erase_if(steps_, [](const auto& one) { return one.second.graph == nullptr; });
    }
    steps_[key].last_used = taken_;
    return step();
  }
  Step& of = found->second;
  of.last_used = taken_;
  if (of.graph == nullptr && !(find_room() && capture(of, step))) return step();
  of.graph->replay();
}

}  // namespace fedhpc
