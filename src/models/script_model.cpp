#include "fedhpc/models/script_model.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

namespace jit = torch::jit;

/// A place in a module that holds a tensor.
struct Slot {
  jit::ObjectPtr object;
  std::size_t index = 0;

  Tensor get() const { return object->getSlot(index).toTensor(); }
  void set(Tensor tensor) const { object->setSlot(index, std::move(tensor)); }
};

/// A parameter or a buffer, at one place or at several that share it.
struct Variable {
  std::string name;
  Tensor initial;
  Tag tags = Tag::None;
  std::vector<Slot> slots;
  std::int64_t column = 0;

  bool trains() const { return has(tags, Tag::Trainable); }
  /// Its part of a row [P], in the same memory; versions are its own, as those of a tensor alone.
  Tensor of(const Tensor& row) const {
    return row.narrow(0, column, initial.numel()).view(initial.sizes()).variable_data();
  }
  void put(const Tensor& tensor) const {
    for (const Slot& slot : slots) slot.set(tensor);
  }
};

/// What backward needs of a client's forward pass.
struct Tape {
  std::vector<Tensor> leaves;  // of each variable; undefined for buffers
  Tensor output;               // [B, K]
};

/// The reason in an error of LibTorch, without its traces of the script and of C++.
std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  for (const std::string_view mark : {"RuntimeError: ", "Error: "}) {
    if (const std::size_t place = text.rfind(mark); place != std::string::npos) {
      text = text.substr(place + mark.size());
      break;
    }
  }
  text.erase(0, text.find_first_not_of(" \n"));
  text = text.substr(0, std::min(text.find('\n'), text.find(". ")));
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

bool is_norm(const jit::Module& module) {
  const std::string type = module.type()->name() ? module.type()->name()->name() : "";
  return type.starts_with("BatchNorm") || type.starts_with("SyncBatchNorm");
}

/// Computes a whole network by a script, client by client.
class ScriptNetwork final : public Layer {
 public:
  ScriptNetwork(const std::string& path, jit::Module module)
      : source_(concat("model.file '", path, "'")), module_(std::move(module)) {
    collect(module_, "");
    const auto head = std::find_if(variables_.rbegin(), variables_.rend(), [](const Variable& one) {
      return one.trains() && one.initial.dim() > 1;
    });
    if (head == variables_.rend()) {
      throw DataError(concat(source_, " has no weight of two or more dimensions to train"));
    }
    std::int64_t columns = 0;
    for (Variable& one : variables_) {
      one.column = columns;
      columns += one.initial.numel();
    }
    const std::string place = head->name.substr(0, head->name.rfind('.') + 1);
    head->tags = head->tags | Tag::Head;
    for (Variable& one : variables_) {
      if (one.name == place + "bias") one.tags = one.tags | Tag::Head;
    }
  }

  /// Throws DataError unless the script makes [2, ...] of two samples, and a gradient.
  void try_out(const Shape& shape) {
    shape_ = shape;
    const Tensor row = initial_row_of_file().to(at::kFloat).squeeze(0);
    const Tensor samples = at::zeros({2, values_of_sample()});
    Tape tape;
    try {
      call(row, samples, Use::Evaluation);
      tape = call(row, samples, Use::Training);
    } catch (const std::exception& error) {
      throw DataError(concat(source_, " cannot be run on samples of ", at::IntArrayRef(shape),
                             " on the CPU: ", reason_of(error)));
    }
    const Tensor& output = tape.output;
    if (output.dim() == 0 || output.size(0) != 2 || !output.is_floating_point()) {
      throw DataError(concat(source_, " makes a tensor ", output.sizes(),
                             " of 2 samples; it has to return real numbers of each of them"));
    }
    outputs_ = output.numel() / 2;
    if (!output.requires_grad()) {
      throw DataError(concat(source_,
                             " gives its parameters no gradient; leave out no_grad and "
                             "detach, and do not freeze the module"));
    }
  }

  Tensor initial_row_of_file() const {  // [1, P] float64
    std::vector<Tensor> parts;
    for (const Variable& one : variables_) parts.push_back(one.initial.flatten().to(at::kDouble));
    return at::cat(parts).unsqueeze(0);
  }

  std::int64_t output_features() const override { return outputs_; }
  bool is_whole_network() const override { return true; }
  bool draws() const override { return true; }
  double forward_flops() const override {
    double weights = 0;
    for (const Variable& one : variables_) weights += static_cast<double>(one.initial.numel());
    return 2 * weights;  // as if each were used once
  }

  void declare(Layout& layout) override {
    require(layout.size() == 0, "a script is the whole network");
    for (const Variable& one : variables_) {
      const std::int64_t units = one.initial.dim() > 0 ? one.initial.size(0) : 1;
      layout.add(one.name, one.initial.sizes().vec(),
                 std::max<std::int64_t>(1, one.initial.numel() / units), one.tags);
    }
  }

  Saved make_saved(std::int64_t clients, std::int64_t, const at::TensorOptions&,
                   Use use) const override {
    Saved saved;
    for (std::int64_t c = 0; c < clients && use == Use::Training; ++c) {
      saved.own.push_back(std::make_shared<Tape>());
    }
    return saved;
  }

  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override {
    for (std::int64_t c = 0; c < output.size(0); ++c) {
      if (pass.use == Use::Training) seed(pass.draws.key(c, 0));
      Tape tape;
      try {
        tape = call(pass.weights[c], inputs.front()[c], pass.use);
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        throw Error(concat(source_, " failed: ", reason_of(error)));
      }
      require(tape.output.numel() == output[c].numel(), "a script's output is [B, V]");
      output[c].copy_(tape.output.detach().reshape(output[c].sizes()));
      if (pass.use == Use::Training) tape_of(pass, c) = std::move(tape);
    }
  }

  void backward(const Pass& pass, Stacks, const Tensor& output, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink& sink) const override {
    require(!input_gradients.front().defined(), "a script is the whole network");
    std::vector<std::size_t> moved;
    for (std::size_t v = 0; v < variables_.size(); ++v) {
      const Variable& one = variables_[v];
      if (one.trains() && sink.columns.hold(one.tags)) moved.push_back(v);
    }
    for (std::int64_t c = 0; c < output.size(0) && !moved.empty(); ++c) {
      const Tape tape = std::exchange(tape_of(pass, c), {});
      std::vector<Tensor> leaves;
      for (const std::size_t v : moved) leaves.push_back(tape.leaves[v]);
      const std::vector<Tensor> gradients = torch::autograd::grad(
          {tape.output}, leaves, {output_gradient[c].reshape(tape.output.sizes())},
          /*retain_graph=*/false,
          /*create_graph=*/false, /*allow_unused=*/true);
      for (std::size_t i = 0; i < moved.size(); ++i) {
        take(variables_[moved[i]].of(sink.rows[c]), gradients[i], sink);
      }
    }
  }

 private:
  /// rows = keep rows + scale gradient, of one variable; undefined: of zeros.
  static void take(const Tensor& rows, const Tensor& gradient, const GradientSink& sink) {
    if (sink.keep == 0) {
      rows.zero_();
    } else if (sink.keep != 1) {
      rows.mul_(sink.keep);
    }
    if (gradient.defined()) rows.add_(gradient, sink.scale);
  }

  static Tape& tape_of(const Pass& pass, std::int64_t c) {
    return *static_cast<Tape*>(pass.saved.own[static_cast<std::size_t>(c)].get());
  }

  static void seed(const DrawKey& key) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(Draws(key).raw());
  }

  std::int64_t values_of_sample() const {
    std::int64_t values = 1;
    for (const std::int64_t length : shape_) values *= length;
    return values;
  }

  /// Takes note of a module's parameters and buffers, and of those of the modules inside.
  void collect(const jit::Module& module, const std::string& prefix) {
    if (!seen_.insert(module._ivalue().get()).second) return;
    const auto& type = module.type();
    for (const bool parameters : {true, false}) {
      for (std::size_t i = 0; i < type->numAttributes(); ++i) {
        const bool wanted = parameters ? type->is_parameter(i) : type->is_buffer(i);
        const Slot slot{module._ivalue(), i};
        if (!wanted || !slot.object->getSlot(i).isTensor()) continue;
        add(prefix + type->getAttributeName(i), slot, parameters, is_norm(module));
      }
    }
    for (const auto& child : module.named_children())
      collect(child.value, prefix + child.name + ".");
  }

  void add(const std::string& name, const Slot& slot, bool parameter, bool of_norm) {
    const Tensor tensor = slot.get().detach();
    if (!tensor.defined()) return;
    if (!tensor.is_floating_point()) {
      if (parameter) throw DataError(concat(source_, ": the parameter '", name, "' is not real"));
      others_.emplace_back(slot, tensor.clone());
      return;
    }
    if (tensor.layout() != at::kStrided) {
      throw DataError(concat(source_, ": '", name, "' is not a dense tensor"));
    }
    for (Variable& one : variables_) {
      if (tensor.numel() > 0 && one.slots.front().get().is_alias_of(tensor) &&
          one.slots.front().get().data_ptr() == tensor.data_ptr() &&
          one.slots.front().get().sizes() == tensor.sizes()) {
        one.slots.push_back(slot);
        return;
      }
    }
    variables_.push_back({name,
                          tensor.clone(at::MemoryFormat::Contiguous),
                          tags_of(name, tensor, parameter, of_norm),
                          {slot}});
  }

  static Tag tags_of(const std::string& name, const Tensor& tensor, bool parameter, bool of_norm) {
    if (!parameter) return Tag::Buffer | Tag::Uncompressed;
    if (tensor.dim() > 1) return kWeightTags;
    Tag tags = of_norm ? kScaleTags : Tag::Trainable | Tag::Uncompressed;
    if (name == "bias" || name.ends_with(".bias")) tags = tags | kBiasTags;
    return tags;
  }

  /// Runs the script on a client's samples [B, D] by its row [P]. In training its buffers move.
  Tape call(const Tensor& row, const Tensor& samples, Use use) const {
    const bool training = use == Use::Training;
    const at::AutoGradMode with_gradient(training);
    // As it is written: what the optimizer makes of it depends on how often it has been called.
    const jit::GraphOptimizerEnabledGuard optimized(false);
    module_.train(training);
    Tape tape;
    tape.leaves.resize(variables_.size());
    for (std::size_t v = 0; v < variables_.size(); ++v) {
      const Variable& one = variables_[v];
      Tensor value = one.of(row);
      if (one.trains()) {
        tape.leaves[v] = value.requires_grad_(training);
      } else if (!training) {
        value = value.clone();
      }
      one.put(value);
    }
    for (const auto& [slot, value] : others_) slot.set(value.clone());
    Shape shape{samples.size(0)};
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    const jit::IValue result = module_.forward({samples.detach().clone().view(shape)});
    if (!result.isTensor()) throw DataError("its output is not a tensor");
    tape.output = result.toTensor();
    if (training) take_buffers(row);
    return tape;
  }

  /// A script may have put new tensors into the places of its buffers.
  void take_buffers(const Tensor& row) const {
    for (const Variable& one : variables_) {
      if (one.trains()) continue;
      const Tensor there = one.of(row);
      const Tensor now = one.slots.front().get();
      if (now.data_ptr() != there.data_ptr()) there.copy_(now.detach());
    }
  }

  std::string source_;
  mutable jit::Module module_;
  std::int64_t outputs_ = 0;
  Shape shape_;
  std::set<const void*> seen_;  // modules
  std::vector<Variable> variables_;
  std::vector<std::pair<Slot, Tensor>> others_;  // buffers that are no rows', and their values
};

jit::Module load(const std::string& path) {
  try {
    return jit::load(path, at::kCPU);
  } catch (const std::exception& error) {
    throw DataError(concat(
        "model.file '", path, "' is no TorchScript file that can be loaded (", reason_of(error),
        "); for model.backend = autograd write it by "
        "fedhpc.script_model or torch.jit.save, not torch.save or torch.export"));
  }
}

}  // namespace

std::unique_ptr<Model> load_script_model(const std::string& path, const Shape& shape) {
  std::int64_t features = 1;
  for (const std::int64_t length : shape) features *= length;
  auto network = std::make_unique<ScriptNetwork>(path, load(path));
  network->try_out(shape);
  const Tensor initial = network->initial_row_of_file();
  Graph graph(features);
  graph.add(std::move(network));
  auto model = std::make_unique<Model>(std::move(graph));
  model->set_weights_of_file(initial);
  return model;
}

}  // namespace fedhpc
