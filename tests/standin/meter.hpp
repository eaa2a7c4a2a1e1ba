#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "standin/costs.hpp"

namespace fedhpc::standin {

/// Launches of a kernel or an operator of LibTorch, and what they cost together.
struct Spent {
  std::int64_t launches = 0;
  Cost cost;
};

/// Counts what is enqueued, by name.
class Meter {
 public:
  /// While it lives, launches are those of one kernel, whose cost belongs to the first.
  class Kernel {
   public:
    Kernel(Meter& meter, std::string name, Cost cost) : meter_(meter) {
      meter_.name_ = std::move(name);
      meter_.cost_ = cost;
    }
    ~Kernel() { meter_.name_.clear(); }
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

   private:
    Meter& meter_;
  };

  /// A launch of the kernel in hand; of one without a cost under its own name.
  void launch(const std::string& name) {
    add(name_.empty() ? name : name_, name_.empty() ? Cost{} : cost_);
    cost_ = {};
  }
  void add(const std::string& name, Cost cost) {
    Spent& spent = (*at_)[name];
    ++spent.launches;
    spent.cost.bytes += cost.bytes;
    spent.cost.operations += cost.operations;
  }

  using Table = std::map<std::string, Spent>;
  /// What is counted from now on goes there; null: to the work outside of captures.
  void count_in(Table* table) { at_ = table == nullptr ? &outside_ : table; }
  Table& outside() { return outside_; }

 private:
  std::string name_;
  Cost cost_;
  Table outside_;
  Table* at_ = &outside_;
};

}  // namespace fedhpc::standin
