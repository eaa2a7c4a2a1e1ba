#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>

#include "fedhpc/models/layout.hpp"

#include "models/script_attributes.hpp"

namespace fedhpc {

/// A place in a module that holds a tensor: an attribute, or an element of a list that is one.
struct ScriptSlot {
  torch::jit::ObjectPtr object;
  std::size_t index = 0;
  std::optional<std::size_t> element{};

  Tensor get() const;
  void set(const Tensor& tensor) const;
};

/// A parameter, a buffer or another tensor of a script, at one place or at several that share it.
struct ScriptVariable {
  std::string name;
  Tensor initial;
  Tag tags = Tag::None;
  bool of_norm = false;
  std::size_t layer = 0;
  std::vector<ScriptSlot> slots{};
  std::int64_t column = 0;  // of a row

  bool trains() const { return has(tags, Tag::Trainable); }
  /// A weight as linear layers and convolutions have them, which may be the head's.
  bool is_weight() const {
    return trains() && initial.dim() > 1 && !has(tags, Tag::Norm | Tag::Uncompressed);
  }
  /// Its part of a row [P], in the same memory; versions are its own, as those of a tensor alone.
  Tensor of(const Tensor& row) const {
    return row.narrow(0, column, initial.numel()).view(initial.sizes()).variable_data();
  }
  void put(const Tensor& tensor) const {
    for (const ScriptSlot& slot : slots) slot.set(tensor);
  }
};

/// What a module and those inside compute from, in their order.
struct ScriptVariables {
  std::vector<ScriptVariable> rows;       // what training may move
  std::vector<ScriptVariable> constants;  // frozen parameters, whole numbers, tensors of no buffer
  std::vector<ScriptAttribute> attributes;
  bool has_batch_norm = false;
};

/// Takes note of all that a module computes from. Throws DataError, which begins with `source`, where
/// a tensor cannot be replaced by a client's, or a module has a state that no row can hold.
ScriptVariables variables_of(const torch::jit::Module& module, const std::string& source);

}  // namespace fedhpc
