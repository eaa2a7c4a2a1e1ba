// LibTorch's operators on tensors of the stand-in: those of the CPU, on the same bytes.
#include <set>

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include "fedhpc/core/error.hpp"

#include "standin/device.hpp"
#include "standin/host_call.hpp"
#include "standin/operator_cost.hpp"

namespace fedhpc::standin {

namespace {

using torch::jit::Stack;

const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

/// Operators after which LibTorch's part for CUDA waits, since the shape of what they give or what
/// the host does next depends on values.
bool waits_for_values(const std::string& name) {
  static const std::set<std::string> names = {"aten::nonzero",
                                              "aten::nonzero_numpy",
                                              "aten::masked_select",
                                              "aten::equal",
                                              "aten::_unique",
                                              "aten::_unique2",
                                              "aten::unique_dim",
                                              "aten::bincount",
                                              "aten::unique_consecutive",
                                              "aten::repeat_interleave"};
  return names.count(name) > 0;
}

bool is_indexing(const std::string& name) {
  return name.rfind("aten::index", 0) == 0 || name == "aten::_index_put_impl_" ||
         name == "aten::_unsafe_index";
}

bool is_copy(const std::string& name) { return name == "aten::copy_"; }

/// A copy between the host and the device: the host waits for it unless it need not.
void check_copy(const at::Tensor& host, bool non_blocking, const std::string& what) {
  if (host.numel() == 0) return;
  const bool pinned = PinnedMemory::get().holds(host.const_data_ptr());
  if (!pinned) {
    Device::get().wait(what + " and memory that is not pinned");
  } else if (!non_blocking) {
    Device::get().wait(what);
  }
}

/// LibTorch's softmax on a device sums a long line in an order that follows from where in 16 bytes it
/// begins: lines that begin differently would be summed differently.
void check_softmax(const std::string& name, const Stack& arguments) {
  const bool backward = name.ends_with("softmax_backward_data");
  if (!backward && name != "aten::_softmax" && name != "aten::_log_softmax") return;
  const at::Tensor x = arguments[0].toTensor();
  const std::int64_t d = c10::maybe_wrap_dim(arguments[backward ? 2 : 1].toInt(), x.dim());
  const auto size = static_cast<std::int64_t>(x.element_size());
  const std::int64_t line = x.size(d) * size;
  const bool beside = c10::multiply_integers(x.sizes().slice(d + 1)) > 1;
  if (!beside && line > 4096 && line % 16 != 0 && x.numel() > x.size(d)) {
    throw Error(name + " of long lines that do not begin alike");
  }
}

c10::Device device_of(const Stack& arguments) {
  c10::Device device = Device::get().current();
  bool found = false;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice() && !found && argument.toDevice().has_index()) {
      device = argument.toDevice();
    }
    each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) return;
      if (found && tensor.device() != device) throw Error("tensors of different cards");
      device = tensor.device();
      found = true;
    });
  }
  return device;
}

/// What CUDA would not take, or would wait for.
void check(const std::string& name, const Stack& arguments) {
  if (waits_for_values(name)) Device::get().wait(name);
  check_softmax(name, arguments);
  if (is_copy(name)) {
    const at::Tensor to = arguments[0].toTensor();
    const at::Tensor from = arguments[1].toTensor();
    const bool non_blocking = arguments[2].toBool();
    if (to.is_cpu()) {
      check_copy(to, non_blocking, "a copy between the device");
      Device::get().note_copy_to_host(to.nbytes());
    }
    if (from.is_cpu()) check_copy(from, non_blocking, "a copy between the device");
    return;
  }
  for (const c10::IValue& argument : arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cpu() && tensor.dim() > 0) {
        if (!is_indexing(name)) throw Error(name + " of a tensor on the device and one on the CPU");
        check_copy(tensor, false, name + " between the device");
      }
      const bool mask = tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
      if (is_indexing(name) && argument.isList() && mask) Device::get().wait(name + " by a mask");
    });
  }
}

/// The storage of a tensor as what comes later has it. A recording's memory is its own until it is
/// gone; work that is late does not keep memory, as it does not on a device.
c10::Storage bytes_of(const at::Tensor& tensor) {
  if (Device::get().is_capturing()) return tensor.storage();
  void* first = tensor.storage().unsafeGetStorageImpl()->mutable_data_ptr().get();
  return {c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
          c10::DataPtr(first, tensor.device()), &device_allocator(), /*resizable=*/true};
}

/// An argument or result as it is kept for later: what it is now, whatever becomes of the tensor.
c10::IValue kept(const c10::IValue& value) {
  return with_tensors(value, [](const at::Tensor& tensor) -> at::Tensor {
    if (!tensor.defined()) return tensor;
    if (tensor.is_cuda()) return on_storage(bytes_of(tensor), c10::DispatchKey::CUDA, tensor);
    return tensor.dim() == 0 && !PinnedMemory::get().holds(tensor.const_data_ptr()) ? tensor.clone()
                                                                                    : tensor;
  });
}

Stack kept(const Stack& values) {
  Stack all;
  for (const c10::IValue& value : values) all.push_back(kept(value));
  return all;
}

std::vector<at::Tensor> tensors_of(const Stack& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

/// A recorded operator: what it gives goes where the recording has promised it.
void call_again(const c10::OperatorHandle& op, c10::Device device, const Stack& arguments,
                const Stack& promised) {
  const Stack results = HostCall(HostCall::Kind::Real, device)(op, arguments);
  const std::vector<at::Tensor> made = tensors_of(results);
  const std::vector<at::Tensor> wanted = tensors_of(promised);
  if (made.size() != wanted.size())
    throw Error(op.schema().name() + " gives another number of tensors");
  for (std::size_t i = 0; i < made.size(); ++i) {
    const bool there = made[i].storage().unsafeGetStorageImpl()->mutable_data_ptr().get() ==
                       wanted[i].storage().unsafeGetStorageImpl()->mutable_data_ptr().get();
    if (!there) wanted[i].copy_(made[i], true);
  }
}

/// An operator that is counted alone. Copies between the host and the device are made.
Stack counted(const c10::OperatorHandle& op, c10::Device card, const Stack& arguments) {
  Device& device = Device::get();
  const std::string& name = op.schema().name();
  bool has_host = false;
  for (const c10::IValue& argument : arguments) {
    each_tensor(argument,
                [&](const at::Tensor& tensor) { has_host |= tensor.is_cpu() && tensor.dim() > 0; });
  }
  Stack results = uncomputed(op, arguments);
  if (has_host && !device.is_capturing()) {
    results = HostCall(HostCall::Kind::Real, card)(op, arguments);
  } else if (results.empty()) {
    try {
      results = HostCall(HostCall::Kind::Meta, card)(op, arguments);
    } catch (const c10::NotImplementedError&) {  // LibTorch tells no shapes without numbers
      results = HostCall(HostCall::Kind::Shapes, card)(op, arguments);
    }
  }
  if (const std::optional<Cost> cost = cost_of(op, arguments, results)) {
    device.meter().add(name, *cost);
  }
  return results;
}

void call(const c10::OperatorHandle& op, Stack* stack) {
  Device& device = Device::get();
  const std::string& name = op.schema().name();
  const std::size_t count = op.schema().arguments().size();
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const std::int64_t waits = device.waits();
  check(name, arguments);
  const bool has_waited = device.waits() > waits;  // all before is done
  const c10::Device card = device_of(arguments);
  Stack results;
  if (!Device::computes()) {
    results = counted(op, card, arguments);
  } else if (device.is_capturing() || (device.is_late() && !has_waited)) {
    // Before the call: that of a result which is resized has its old size.
    Stack before = kept(arguments);
    HostCall shapes(HostCall::Kind::Shapes, card);
    results = shapes(op, arguments);
    device.enqueue(name, [op, card, given = std::move(before), promised = kept(results)] {
      call_again(op, card, given, promised);
    });
  } else {
    device.do_now(name, [&] { results = HostCall(HostCall::Kind::Real, card)(op, arguments); });
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  const c10::DeviceGuard guard(device.value_or(Device::get().current()));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &device_allocator(), kKeys,
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  const c10::DeviceGuard guard(device.value_or(Device::get().current()));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size),
                                           C10_AS_INTARRAYREF_SLOW(stride), &device_allocator(),
                                           kKeys, c10::dtype_or_default(type));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional<std::int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

at::Scalar local_scalar(const at::Tensor& self) {
  Device::get().wait("a number of the device");
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto& memory = DeviceMemory::get();
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), self.storage().nbytes(),
      c10::DataPtr(memory.reach(self.storage().unsafeGetStorageImpl()->mutable_data_ptr().get()),
                   c10::Device(c10::DeviceType::CPU)));
  return at::_local_scalar_dense(on_storage(storage, c10::DispatchKey::CPU, self));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  DeviceMemory::get().used_by(self.storage().unsafeGetStorageImpl()->mutable_data_ptr().get(),
                              {stream.device_index(), stream.id()});
}

}  // namespace

void fallback(const c10::OperatorHandle& op, Stack* stack) { call(op, stack); }

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("record_stream", &record_stream);
  // These are made of others elsewhere, which copy_ needs here and convolutions, which choose by
  // device, would not find on the CPU.
  for (const char* name : {"copy_", "convolution", "convolution_backward", "_convolution"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace fedhpc::standin
