#include "fedhpc/training/step_graphs.hpp"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

namespace fedhpc {

void StepGraphs::begin(std::map<std::vector<BatchRun>, std::int64_t> with_runs) {
  ++pass_;
  with_runs_ = std::move(with_runs);
  std::set<double> rates;
  for (const auto& [runs, steps] : with_runs_) {
    for (const BatchRun& run : runs) rates.insert(run.rate);
  }
  for (const Seen::iterator one : with_graph_) {
    one->second.is_past = !std::ranges::all_of(
        one->first.runs, [&](const BatchRun& run) { return rates.contains(run.rate); });
  }
}

bool StepGraphs::is_worth_a_capture(const Seen::value_type& step) const {
  if (step.second.first_pass < pass_) return true;
  const auto found = with_runs_.find(step.first.runs);
  return found != with_runs_.end() && found->second >= kWorthACapture;
}

bool StepGraphs::find_room() {
  if (with_graph_.size() < kMostGraphs) return true;
  const auto first = std::ranges::min_element(with_graph_, {}, [](Seen::iterator one) {
    return std::pair(!one->second.is_past, one->second.last_used);
  });
  Step& step = (*first)->second;
  if (!step.is_past && taken_ - step.last_used < kLong) return false;
  step.graph.reset();
  with_graph_.erase(first);
  return true;
}

bool StepGraphs::capture(Seen::iterator of, const Call& call, std::size_t clients) {
  try {
    std::vector<TrainStatistics> counted(clients);
    of->second.graph = device_kernels().capture([&] { call(counted); });
    of->second.is_past = false;
    with_graph_.push_back(of);
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
    found->second.first_pass = pass_;
    for (const BatchRun& run : key.runs) {
      found->second.counted.push_back(counted[static_cast<std::size_t>(run.first)]);
    }
  } else if (found->second.graph == nullptr && !(is_worth_a_capture(*found) && find_room() &&
                                                 capture(found, call, statistics.size()))) {
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
