#include "fedhpc/training/step_graphs.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>

namespace fedhpc {

bool StepGraphs::find_room() {
  std::int64_t graphs = 0;
  auto oldest = steps_.end();
  for (auto one = steps_.begin(); one != steps_.end(); ++one) {
    if (one->second.graph == nullptr) continue;
    ++graphs;
    if (oldest == steps_.end() || one->second.last_used < oldest->second.last_used) oldest = one;
  }
  if (graphs < kMostGraphs) return true;
  if (taken_ - oldest->second.last_used < kLong) return false;
  oldest->second.graph.reset();
  return true;
}

bool StepGraphs::capture(Step& of, const std::function<void()>& step) {
  try {
    of.graph = device_kernels().capture(step);
    ++captured_;
    return true;
  } catch (const std::exception& error) {
    possible_ = false;
    std::fprintf(stderr, "fedhpc: warning: local steps are not captured as CUDA graphs: %s\n",
                 error.what());
    return false;
  }
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
