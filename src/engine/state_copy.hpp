#pragma once

#include <map>
#include <string>

#include "fedhpc/rounds/state_visitor.hpp"

#include "engine/state_file.hpp"

namespace fedhpc {

/// Copies a state in memory, without what lies with the clients. The first walk takes it; walks
/// after put_back() restore it.
class StateCopy final : public StateVisitor {
 public:
  void put_back() { puts_back_ = true; }
  bool restores() const override { return puts_back_; }

  void tensor(const std::string& name, Tensor& values) override {
    if (puts_back_) {
      const auto held = held_.find(name);
      if (held == held_.end()) refuse_late_state(name);
      values = held->second;
    } else {
      held_[name] = values.clone();
    }
  }
  void edges(const std::string& name, EdgeRows& models) override {
    tensor(name, models.rows.values);
  }
  void clients(ClientStore&) override {}

 private:
  std::map<std::string, Tensor> held_;
  bool puts_back_ = false;
};

}  // namespace fedhpc
