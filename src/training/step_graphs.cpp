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

bool StepGraphs::capture(Step& of, const Call& call, std::size_t clients) {
  try {
    std::vector<TrainStatistics> counted(clients);
    of.graph = device_kernels().capture([&] { call(counted); });
    with_graph_.push_back(&of);
    ++captured_;
    return true;
  } catch (const std::exception& error) {
    possible_ = false;
    // One slow rank slows all: it says so, and where all have it, one of them warns.
    run_log().of_rank(run_log().rank() == 0 ? LogLevel::Warning : LogLevel::Note,
                      concat("local steps are not captured as CUDA graphs: ", error.what()));
    return false;
  }
}

void StepGraphs::clear() {
  with_graph_.clear();
  steps_.clear();
}

void StepGraphs::take(const Key& key, const Call& call, std::vector<TrainStatistics>& statistics) {
  if (!possible_) return call(statistics);
  ++taken_;
  auto found = steps_.find(key);
  if (found == steps_.end()) {
    if (steps_.size() == kMostSeen) {  // sizes that do not come again
      std::erase_if(steps_, [](const auto& one) { return one.second.graph == nullptr; });
    }
    std::vector<TrainStatistics> counted(statistics.size());
    call(counted);
    found = steps_.try_emplace(key).first;
    for (const BatchRun& run : key.runs) {
      found->second.counted.push_back(counted[static_cast<std::size_t>(run.first)]);
    }
  } else if (found->second.graph == nullptr &&
             !(find_room() && capture(found->second, call, statistics.size()))) {
    found->second.last_used = taken_;
    return call(statistics);
  } else {
    found->second.graph->replay();
  }
  found->second.last_used = taken_;
  for (std::size_t r = 0; r < key.runs.size(); ++r) {
    const TrainStatistics& of_run = found->second.counted[r];
    for (std::int64_t c = key.runs[r].first; c < key.runs[r].first + key.runs[r].count; ++c) {
      TrainStatistics& of_client = statistics[static_cast<std::size_t>(c)];
      of_client.samples += of_run.samples;
      of_client.gradients += of_run.gradients;
      of_client.gradient_values += of_run.gradient_values;
    }
  }
}

}  // namespace fedhpc
