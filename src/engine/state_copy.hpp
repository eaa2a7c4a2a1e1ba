#pragma once

#include <map>
#include <string>

#include "fedhpc/rounds/state_visitor.hpp"

namespace fedhpc {

/// A state in memory, without what lies with the clients: taken by the first walk, put back by
/// those after put_back().
class StateCopy final : public StateVisitor {
 public:
  void put_back() { puts_back_ = true; }
  bool restores() const override { return puts_back_; }

  void tensor(const std::string& name, Tensor& values) override {
    if (puts_back_) {
      values = held_.at(name);
    } else {
      held_[name] = values.clone();
    }
  }
  void rows(const std::string& name, Rows& rows) override { tensor(name, rows.values); }
  void edges(const std::string& name, EdgeRows& models) override {
    tensor(name, models.rows.values);
  }
  void clients(ClientStore&) override {}

 private:
  std::map<std::string, Tensor> held_;
  bool puts_back_ = false;
};

}  // namespace fedhpc
