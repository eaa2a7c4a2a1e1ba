#include "standin/operator_cost.hpp"

#include <set>
#include <string>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "standin/host_call.hpp"

namespace fedhpc::standin {

namespace {

using torch::jit::Stack;

/// Values of a tensor that lie in memory: one that is repeated lies there once.
std::int64_t values_of(const at::Tensor& tensor) {
  std::int64_t values = 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) != 0 || tensor.size(d) == 0) values *= tensor.size(d);
  }
  return values;
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return values_of(tensor) * static_cast<std::int64_t>(tensor.itemsize());
}

bool only_writes(const std::string& name) {
  static const std::set<std::string> names = {"aten::zero_", "aten::fill_", "aten::copy_"};
  return names.count(name) > 0;
}

/// Additions and multiplications for each value of the result; 1 where it is no sum of products.
double terms_of(const std::string& name, const Stack& arguments) {
  const auto inner = [&](std::size_t factor) {
    return 2.0 * static_cast<double>(arguments[factor].toTensor().size(-1));
  };
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv") return inner(0);
  if (name == "aten::addmm" || name == "aten::baddbmm") return inner(1);
  return 1;
}

/// Additions and multiplications of one of a convolution's three products.
double of_convolution(const at::Tensor& output, const at::Tensor& weight) {
  return 2.0 * static_cast<double>(output.numel()) *
         static_cast<double>(weight.numel() / weight.size(0));
}

}  // namespace

std::optional<Cost> cost_of(const c10::OperatorHandle& op, const Stack& arguments,
                            const Stack& results) {
  const std::string& name = op.schema().name();
  Cost cost;
  bool changes = false;
  std::int64_t most = 0;
  std::vector<at::Tensor> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      given.push_back(tensor);
      if (!written || !only_writes(name)) cost.bytes += bytes_of(tensor);
      if (written) cost.bytes += bytes_of(tensor);
      changes |= written;
      most = std::max(most, tensor.numel());
    });
  }
  for (const c10::IValue& result : results) {
    each_tensor(result, [&](const at::Tensor& tensor) {
      for (const at::Tensor& one : given) {
        if (one.storage().is_alias_of(tensor.storage())) return;
      }
      cost.bytes += bytes_of(tensor);
      cost.operations += static_cast<double>(tensor.numel()) * terms_of(name, arguments);
      changes = true;
    });
  }
  if (!changes) return std::nullopt;
  cost.operations = std::max(cost.operations, only_writes(name) ? 0 : static_cast<double>(most));
  if (name == "aten::convolution") {
    cost.operations = of_convolution(results[0].toTensor(), arguments[1].toTensor());
  } else if (name == "aten::convolution_backward") {
    const auto wanted = arguments.back().toBoolList();
    const int products = (wanted[0] ? 1 : 0) + (wanted[1] ? 1 : 0);
    cost.operations = products * of_convolution(arguments[0].toTensor(), arguments[2].toTensor());
  }
  return cost;
}

namespace {

at::Tensor image_of(const Stack& arguments) {
  const at::Tensor input = arguments[0].toTensor();
  const at::Tensor weight = arguments[1].toTensor();
  const auto stride = arguments[3].toIntVector();
  const auto padding = arguments[4].toIntVector();
  const auto dilation = arguments[5].toIntVector();
  std::vector<std::int64_t> shape{input.size(0), weight.size(0)};
  for (std::size_t d = 0; d < stride.size(); ++d) {
    const auto side = static_cast<std::int64_t>(d) + 2;
    const std::int64_t span = dilation[d] * (weight.size(side) - 1) + 1;
    shape.push_back((input.size(side) + 2 * padding[d] - span) / stride[d] + 1);
  }
  return at::empty(shape, input.options(), input.suggest_memory_format());
}

}  // namespace

Stack uncomputed(const c10::OperatorHandle& op, const Stack& arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::convolution") return {image_of(arguments)};
  if (name == "aten::convolution_backward") {
    const auto wanted = arguments.back().toBoolList();
    const at::Tensor input = arguments[1].toTensor();
    const at::Tensor weight = arguments[2].toTensor();
    return {wanted[0] ? at::empty_like(input) : at::Tensor(),
            wanted[1] ? at::empty_like(weight) : at::Tensor(), at::Tensor()};
  }
  if (name == "aten::where" && arguments.size() == 3) {
    const at::Tensor chosen = arguments[1].toTensor();
    return {at::empty(at::infer_size(arguments[0].toTensor().sizes(), chosen.sizes()),
                      arguments[0].toTensor().options().dtype(chosen.scalar_type()))};
  }
  return {};
}

}  // namespace fedhpc::standin
