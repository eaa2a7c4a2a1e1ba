#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace fedhpc::standin {

/// One call of an operator of LibTorch on the host: in the place of the device's tensors stand
/// tensors of the host on the same bytes, and what it results in goes back to the device. What it
/// leaves is free when this ends.
class HostCall {
 public:
  enum class Kind {
    Real,
    /// On zeros in the place of all arguments: nothing is computed, but the results are made.
    Shapes,
    /// On tensors without memory: the same, whatever the sizes.
    Meta
  };
  HostCall(Kind kind, c10::Device device) : kind_(kind), device_(device) {}

  /// The operator's results for its arguments.
  torch::jit::Stack operator()(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

 private:
  struct StoragePair {
    c10::Storage device;
    c10::Storage host;
    const void* start;  ///< of the host's, as long as it is not resized
  };
  struct TensorPair {
    at::Tensor given;
    at::Tensor host;
  };

  c10::DispatchKey key() const {
    return kind_ == Kind::Meta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  }
  c10::IValue to_host(const c10::IValue& argument);
  at::Tensor to_host(const at::Tensor& given);
  const c10::Storage& host_storage(const c10::Storage& device);
  c10::IValue to_device(const c10::IValue& result);
  at::Tensor to_device(const at::Tensor& given);
  void resize_as_host();

  Kind kind_;
  c10::Device device_;
  std::vector<StoragePair> storages_;
  std::vector<TensorPair> tensors_;
  std::vector<c10::DataPtr> left_;  // what a resized tensor had before, until this ends
};

/// Calls `visit` with each tensor in a value, also of lists; undefined ones are left out.
template <typename Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& entry : value.toListRef()) each_tensor(entry, visit);
  }
}

/// A value with `change`d tensors, also in lists.
template <typename Change>
c10::IValue with_tensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (!value.isList()) return value;
  const c10::List<c10::IValue> list = value.toList();
  c10::impl::GenericList changed(list.elementType());
  bool has_tensors = false;
  for (const c10::IValue& entry : value.toListRef()) {
    has_tensors |= entry.isTensor();
    changed.push_back(with_tensors(entry, change));
  }
  return has_tensors ? c10::IValue(changed) : value;
}

/// A tensor on the storage of another.
at::Tensor on_storage(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& shape);

}  // namespace fedhpc::standin
