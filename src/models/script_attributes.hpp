#pragma once

#include <cstddef>
#include <string>

#include <torch/csrc/jit/api/object.h>

namespace fedhpc {

/// Whether two tensors of one type hold the same bits, numbers or not.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// An attribute of a script that is no tensor, or one without values: a count, a flag, a list, a
/// dictionary. All clients share a script, so that it has to stay as the file has it.
class ScriptAttribute {
 public:
  /// Copies the value that stands there.
  ScriptAttribute(std::string name, torch::jit::ObjectPtr object, std::size_t index);

  const std::string& name() const { return name_; }
  bool has_changed() const;

 private:
  std::string name_;
  torch::jit::ObjectPtr object_;
  std::size_t index_;
  torch::jit::IValue initial_;
};

}  // namespace fedhpc
