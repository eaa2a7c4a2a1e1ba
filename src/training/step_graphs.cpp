#include "fedhpc/training/step_graphs.hpp"

#include <cstdio>
#include <exception>

namespace fedhpc {

void StepGraphs::take(const Key& key, const std::function<void()>& step) {
  if (!possible_) return step();
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    if (graphs_.size() == kMost) graphs_.clear();
    graphs_.emplace(key, nullptr);
    return step();
  }
  if (found->second == nullptr) {
    try {
      found->second = device_kernels().capture(step);
      ++captured_;
    } catch (const std::exception& error) {
      possible_ = false;
      graphs_.clear();
      std::fprintf(stderr, "fedhpc: warning: local steps are not captured as CUDA graphs: %s\n",
                   error.what());
      return step();
    }
  }
  found->second->replay();
}

}  // namespace fedhpc
