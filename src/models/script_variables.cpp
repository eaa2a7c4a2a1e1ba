#include "models/script_variables.hpp"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

#include "fedhpc/core/error.hpp"
#include "fedhpc/models/layer.hpp"

namespace fedhpc {

namespace {

namespace jit = torch::jit;

/// The flag that train() and eval() set.
constexpr std::string_view kTraining = "training";

/// What tags and layers depend on.
enum class Kind { Other, Norm, Table, Recurrent };

bool begins_with_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
}

std::string type_of(const jit::Module& module) {
  return module.type()->name() ? module.type()->name()->name() : "";
}

bool is_batch_norm(const std::string& type) {
  return begins_with_one_of(type, {"BatchNorm", "SyncBatchNorm"});
}

Kind kind_of(const std::string& type) {
  if (is_batch_norm(type) ||
      begins_with_one_of(type, {"LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm"})) {
    return Kind::Norm;
  }
  if (type.starts_with("Embedding")) return Kind::Table;
  return type == "LSTM" || type == "GRU" || type == "RNN" ? Kind::Recurrent : Kind::Other;
}

Tag tags_of(std::string_view name, const Tensor& tensor, Kind kind) {
  const bool bias = is_bias(name) || (kind == Kind::Recurrent && name.starts_with("bias_"));
  if (kind == Kind::Norm) return bias ? kScaleTags | Tag::Bias : kScaleTags;
  if (kind == Kind::Table) return kTableTags;
  if (tensor.dim() > 1) return kWeightTags;
  return bias ? kBiasTags : kTableTags;
}

bool is_dense(const Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.numel() > 0;
}

/// The first byte of a tensor and the one behind its last.
std::pair<const char*, const char*> bytes_of(const Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const char* first = static_cast<const char*>(tensor.const_data_ptr());
  return {first, first + (last + 1) * static_cast<std::int64_t>(tensor.element_size())};
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (!is_dense(a) || !is_dense(b) || !a.is_alias_of(b)) return false;
  const auto [first, last] = bytes_of(a);
  const auto [other_first, other_last] = bytes_of(b);
  return first < other_last && other_first < last;
}

bool is_same(const Tensor& a, const Tensor& b) {
  return overlap(a, b) && a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

/// Goes through modules: at first for parameters and buffers, then for what shares their memory.
class Collector {
 public:
  explicit Collector(const std::string& source) : source_(source) {}

  ScriptVariables collect(const jit::Module& module) {
    add_module(module, "");
    for (const auto& [one, prefix] : modules_) add_others(one, prefix);
    return std::move(found_);
  }

 private:
  void add_module(const jit::Module& module, const std::string& prefix) {
    if (!seen_.insert(module._ivalue().get()).second) return;
    modules_.emplace_back(module, prefix);
    const auto& type = module.type();
    const std::string name_of_type = type_of(module);
    if (is_batch_norm(name_of_type)) {
      found_.has_batch_norm = true;
      require_momentum(module, prefix);
    }
    kind_ = kind_of(name_of_type);
    ++layer_;
    layer_has_matrix_ = false;
    for (const bool parameters : {true, false}) {
      for (std::size_t i = 0; i < type->numAttributes(); ++i) {
        const bool wanted = parameters ? type->is_parameter(i) : type->is_buffer(i);
        const ScriptSlot slot{module._ivalue(), i};
        if (!wanted || !slot.object->getSlot(i).isTensor()) continue;
        add(prefix, type->getAttributeName(i), slot, parameters);
      }
    }
    for (const auto& child : module.named_children()) {
      add_module(child.value, prefix + child.name + ".");
    }
  }

  /// Without one, statistics are means over all batches so far, and no row holds their number.
  void require_momentum(const jit::Module& norm, const std::string& prefix) const {
    const auto constant = norm.type()->findConstantSlot("momentum");
    const bool none = constant ? norm.type()->getConstant(*constant).isNone()
                               : norm.hasattr("momentum") && norm.attr("momentum").isNone();
    if (!none) return;
    throw DataError(
        concat(source_, ": batch norm '", prefix.substr(0, prefix.rfind('.')),
               "' has momentum=None, a mean over all steps, which no run takes; give it "
               "a momentum"));
  }

  void add(const std::string& prefix, const std::string& own, const ScriptSlot& slot,
           bool parameter) {
    const Tensor tensor = slot.get();
    if (!tensor.defined()) return;
    const std::string name = prefix + own;
    const Tag tags = parameter ? tags_of(own, tensor, kind_) : Tag::Buffer | Tag::Uncompressed;
    if (parameter && tensor.requires_grad() && !tensor.is_floating_point()) {
      throw DataError(concat(source_, ": the parameter '", name, "' is not real"));
    }
    const bool constant = !tensor.is_floating_point() || (parameter && !tensor.requires_grad());
    if (!constant && tensor.layout() != at::kStrided) {
      throw DataError(concat(source_, ": '", name, "' is not a dense tensor"));
    }
    if (ScriptVariable* known = holder_of(tensor, name)) {
      known->slots.push_back(slot);
      // A table that is a linear layer's weight as well is one.
      if (known->trains() && parameter && kind_ == Kind::Other) known->tags = tags;
      return;
    }
    if (!constant && parameter) begin_layer_of(own, tensor);
    std::vector<ScriptVariable>& into = constant ? found_.constants : found_.rows;
    into.push_back({.name = name,
                    .initial = tensor.detach().clone(at::MemoryFormat::Contiguous),
                    .tags = constant ? Tag::None : tags,
                    .of_norm = kind_ == Kind::Norm,
                    .layer = layer_,
                    .slots = {slot}});
  }

  /// A module is a layer; one with several matrices has several, a recurrent one as many as levels.
  void begin_layer_of(const std::string& own, const Tensor& tensor) {
    if (tensor.dim() < 2 || kind_ == Kind::Norm) return;
    const bool level = own.starts_with("weight_ih_l") && !own.ends_with("_reverse");
    if (layer_has_matrix_ && (kind_ != Kind::Recurrent || level)) ++layer_;
    layer_has_matrix_ = true;
  }

  /// The variable that is this very tensor; null: none. None may share but a part of its memory.
  ScriptVariable* holder_of(const Tensor& tensor, const std::string& name) {
    for (std::vector<ScriptVariable>* all : {&found_.rows, &found_.constants}) {
      for (ScriptVariable& one : *all) {
        const Tensor there = one.slots.front().get();
        if (is_same(there, tensor)) return &one;
        if (one.trains() && overlap(there, tensor)) refuse(name, one);
      }
    }
    return nullptr;
  }

  [[noreturn]] void refuse(const std::string& name, const ScriptVariable& one) const {
    throw DataError(concat(source_, ": '", name, "' shares memory with the parameter '", one.name,
                           "' in a way that does not follow when clients' values take its place; ",
                           "compute it in forward from the parameter"));
  }

  void add_others(const jit::Module& module, const std::string& prefix) {
    const auto& type = module.type();
    for (std::size_t i = 0; i < type->numAttributes(); ++i) {
      if (type->is_parameter(i) || type->is_buffer(i)) continue;
      const jit::IValue value = module._ivalue()->getSlot(i);
      if (value.isModule() || type->getAttributeName(i) == kTraining) continue;
      const std::string name = prefix + type->getAttributeName(i);
      const ScriptSlot slot{module._ivalue(), i};
      if (value.isTensor() && is_dense(value.toTensor())) {
        add_tensor(name, slot);
      } else if (!value.isTensorList() || !add_shared(name, slot)) {
        check_inside(name, value);
        found_.attributes.emplace_back(name, module._ivalue(), i);
      }
    }
  }

  /// Takes note of the elements of a list that are parameters or buffers. Returns whether there are
  /// any.
  bool add_shared(const std::string& name, const ScriptSlot& list) {
    const std::size_t count = list.object->getSlot(list.index).toTensorList().size();
    bool shares = false;
    for (std::size_t k = 0; k < count; ++k) {
      const ScriptSlot slot{list.object, list.index, k};
      ScriptVariable* known = holder_of(slot.get(), name);
      if (known == nullptr) continue;
      known->slots.push_back(slot);
      shares = true;
    }
    return shares;
  }

  /// A tensor that is neither parameter nor buffer: torch does not train it.
  void add_tensor(const std::string& name, const ScriptSlot& slot) {
    const Tensor tensor = slot.get();
    if (ScriptVariable* known = holder_of(tensor, name)) {
      known->slots.push_back(slot);
    } else {
      found_.constants.push_back(
          {.name = name, .initial = tensor.detach().clone(), .slots = {slot}});
    }
  }

  /// Dictionaries, tuples and objects keep their own tensors alone.
  void check_inside(const std::string& name, const jit::IValue& value) const {
    value.visit([&](const jit::IValue& part) {
      if (!part.isTensor()) return part.isModule();
      for (const ScriptVariable& one : found_.rows) {
        if (one.trains() && overlap(one.slots.front().get(), part.toTensor())) refuse(name, one);
      }
      return true;
    });
  }

  const std::string& source_;
  ScriptVariables found_;
  std::vector<std::pair<jit::Module, std::string>> modules_;  // each with the prefix of its names
  std::set<const void*> seen_;                                // modules
  Kind kind_ = Kind::Other;                                   // of the module in hand
  std::size_t layer_ = 0;
  bool layer_has_matrix_ = false;
};

}  // namespace

Tensor ScriptSlot::get() const {
  const jit::IValue& value = object->getSlot(index);
  return element ? value.toTensorList().get(*element) : value.toTensor();
}

void ScriptSlot::set(const Tensor& tensor) const {
  if (element) {
    object->getSlot(index).toTensorList().set(*element, tensor);
  } else {
    object->setSlot(index, tensor);
  }
}

ScriptVariables variables_of(const jit::Module& module, const std::string& source) {
  return Collector(source).collect(module);
}

}  // namespace fedhpc
