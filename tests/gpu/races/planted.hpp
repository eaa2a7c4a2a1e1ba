#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/thread_launcher.hpp"

// Kernels with a race, which has to be reported, and one without.

namespace fedhpc::test {

/// What comes between a write and a neighbour's read of it.
enum class Between { TeamSum, TeamSync, Sync };

/// Each thread reads what the next one has written, and then writes anew.
struct Neighbours {
  Between between;
  double* values;  // [groups, threads]
  double* out;

  template <typename Group>
  void operator()(Group& group, std::int64_t g) const {
    double* own = values + g * group.size();
    own[group.rank()] = 1;
    wait(group);
    out[g * group.size() + group.rank()] = own[(group.rank() + 1) % group.size()];
    wait(group);
    own[group.rank()] = 2;
  }

  template <typename Group>
  void wait(Group& group) const {
    if (between == Between::Sync) group.sync();
    if (between == Between::TeamSync) group.team_sync();
    if (between == Between::TeamSum) group.team_sum(1.0);
  }
};

/// All groups write one number.
struct GroupsShare {
  double* value;

  template <typename Group>
  void operator()(Group& group, std::int64_t g) const {
    group.sync();
    if (group.rank() == 0) *value = static_cast<double>(g);
    group.sync();
  }
};

/// Pairs of elements write one number.
struct ElementsShare {
  double* values;

  void operator()(std::int64_t i) const { values[i / 2] = static_cast<double>(i); }
};

/// Whether there is a kernel of this name, which then has run.
template <typename Launcher>
bool run_planted(const std::string& name, const Launcher& launcher) {
  constexpr int kGroups = 3;
  constexpr int kThreads = 64;
  std::vector<double> values(kGroups * kThreads);
  std::vector<double> out(kGroups * kThreads);
  const auto neighbours = [&](Between between) {
    launcher.groups(kGroups, kThreads, Neighbours{between, values.data(), out.data()});
    return true;
  };
  if (name == "neighbours") return neighbours(Between::Sync);
  if (name == "team_sync") return neighbours(Between::TeamSync);
  if (name == "team_sum") return neighbours(Between::TeamSum);
  if (name == "groups") {
    launcher.groups(kGroups, kThreads, GroupsShare{values.data()});
    return true;
  }
  if (name == "elements") {
    launcher.each(kGroups * kThreads, ElementsShare{values.data()});
    return true;
  }
  return false;
}

}  // namespace fedhpc::test
