#include "standin/host_call.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>

#include "standin/device_memory.hpp"

namespace fedhpc::standin {

namespace {

using torch::jit::Stack;

c10::Storage on_host_bytes(void* start, std::size_t bytes) {
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(start, c10::Device(c10::DeviceType::CPU)), c10::GetDefaultCPUAllocator(),
          /*resizable=*/true};
}

c10::Storage zeros(std::size_t bytes) {
  c10::DataPtr data(std::calloc(bytes + 1, 1), c10::Device(c10::DeviceType::CPU));
  void* start = data.get();
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(start, start, std::free, c10::Device(c10::DeviceType::CPU)),
          c10::GetDefaultCPUAllocator(), /*resizable=*/true};
}

c10::Storage nowhere(std::size_t bytes) {
  return {c10::Storage::use_byte_size_t(), bytes,
          c10::DataPtr(nullptr, c10::Device(c10::DeviceType::Meta)),
          c10::GetAllocator(c10::DeviceType::Meta), /*resizable=*/true};
}

/// LibTorch's sums on a device go in an order that depends on the tensor's shape: here, backwards
/// where its first size is even.
void order_by_shape(const std::string& name, Stack& arguments) {
  constexpr std::int64_t kSaid = -1;
  struct Sums {
    std::size_t factor;        // which argument
    std::int64_t dimension;    // that is summed over, kSaid: an argument says which
    std::size_t where_said{};  // that argument
  };
  static const std::map<std::string, std::vector<Sums>> sums = {
      {"aten::sum", {{0, kSaid, 1}}},
      {"aten::mean", {{0, kSaid, 1}}},
      {"aten::linalg_vector_norm", {{0, kSaid, 2}}},
      {"aten::dot", {{0, 0}, {1, 0}}},
      {"aten::mv", {{0, 1}, {1, 0}}},
      {"aten::mm", {{0, 1}, {1, 0}}},
      {"aten::addmm", {{1, 1}, {2, 0}}},
      {"aten::bmm", {{0, 2}, {1, 1}}},
      {"aten::baddbmm", {{1, 2}, {2, 1}}}};
  const auto found = sums.find(name);
  if (found == sums.end()) return;
  const at::Tensor first = arguments[found->second.front().factor].toTensor();
  if (!first.is_floating_point() || first.dim() == 0 || first.size(0) % 2 != 0) return;
  for (const auto& [factor, dimension, where_said] : found->second) {
    const at::Tensor values = arguments[factor].toTensor();
    std::vector<std::int64_t> over{dimension};
    if (dimension == kSaid) {
      over.resize(static_cast<std::size_t>(values.dim()));
      std::iota(over.begin(), over.end(), 0);
      const bool said = arguments.size() > where_said && arguments[where_said].isIntList();
      if (said && !arguments[where_said].toIntVector().empty()) {
        over = arguments[where_said].toIntVector();
      }
    }
    arguments[factor] = at::flip(values, over);
  }
}

bool is_number_of_host(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.dim() == 0; }

}  // namespace

at::Tensor on_storage(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& shape) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                       c10::DispatchKeySet(key), shape.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes(), shape.strides(),
                                                    shape.storage_offset());
  if (shape.unsafeGetTensorImpl()->is_wrapped_number()) {
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return made;
}

const c10::Storage& HostCall::host_storage(const c10::Storage& device) {
  for (const StoragePair& pair : storages_) {
    if (pair.device.is_alias_of(device)) return pair.host;
  }
  void* start = DeviceMemory::get().reach(device.unsafeGetStorageImpl()->mutable_data_ptr().get());
  const std::size_t bytes = device.nbytes();
  storages_.push_back({device,
                       kind_ == Kind::Real     ? on_host_bytes(start, bytes)
                       : kind_ == Kind::Shapes ? zeros(bytes)
                                               : nowhere(bytes),
                       nullptr});
  storages_.back().start = storages_.back().host.data();
  return storages_.back().host;
}

at::Tensor HostCall::to_host(const at::Tensor& given) {
  if (!given.defined() || is_number_of_host(given)) return given;
  if (given.is_cpu() && kind_ == Kind::Real) return given;
  for (const TensorPair& pair : tensors_) {
    if (pair.given.is_same(given)) return pair.host;
  }
  tensors_.push_back({given, on_storage(host_storage(given.storage()), key(), given)});
  return tensors_.back().host;
}

c10::IValue HostCall::to_host(const c10::IValue& argument) {
  if (argument.isDevice()) {
    return c10::Device(kind_ == Kind::Meta ? c10::DeviceType::Meta : c10::DeviceType::CPU);
  }
  return with_tensors(argument, [this](const at::Tensor& given) { return to_host(given); });
}

at::Tensor HostCall::to_device(const at::Tensor& given) {
  if (!given.defined()) return given;
  at::Tensor result = given;
  for (const TensorPair& pair : tensors_) {
    if (pair.host.is_same(result)) return pair.given;
  }
  for (const StoragePair& pair : storages_) {  // a view of an argument
    if (pair.host.is_alias_of(result.storage())) {
      return on_storage(pair.device, c10::DispatchKey::CUDA, result);
    }
  }
  if (!result.is_non_overlapping_and_dense()) result = result.contiguous();
  const at::Tensor made = at::empty_strided(
      result.sizes(), result.strides(), at::TensorOptions(result.scalar_type()).device(device_));
  if (kind_ == Kind::Real) {
    on_storage(host_storage(made.storage()), c10::DispatchKey::CPU, made).copy_(result);
  }
  return made;
}

c10::IValue HostCall::to_device(const c10::IValue& result) {
  return with_tensors(result, [this](const at::Tensor& tensor) { return to_device(tensor); });
}

void HostCall::resize_as_host() {
  for (StoragePair& pair : storages_) {
    if (pair.host.data() == pair.start) continue;
    c10::StorageImpl& device = *pair.device.unsafeGetStorageImpl();
    left_.push_back(device.set_data_ptr(device_allocator().allocate(pair.host.nbytes())));
    device.set_nbytes(pair.host.nbytes());
    if (kind_ == Kind::Real) {
      std::memcpy(DeviceMemory::get().reach(device.mutable_data_ptr().get()), pair.host.data(),
                  pair.host.nbytes());
    }
  }
  for (const TensorPair& pair : tensors_) {
    if (pair.given.sizes() == pair.host.sizes() && pair.given.strides() == pair.host.strides() &&
        pair.given.storage_offset() == pair.host.storage_offset()) {
      continue;
    }
    pair.given.unsafeGetTensorImpl()->set_sizes_and_strides(pair.host.sizes(), pair.host.strides(),
                                                            pair.host.storage_offset());
  }
}

Stack HostCall::operator()(const c10::OperatorHandle& op, const Stack& arguments) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  tensors_.reserve(16);
  Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(to_host(argument));
  if (kind_ == Kind::Real) order_by_shape(op.schema().name(), stack);
  // A tensor that stood for itself comes back as itself.
  op.redispatchBoxed(c10::DispatchKeySet(key()), &stack);
  resize_as_host();
  Stack results;
  for (const c10::IValue& result : stack) {
    bool is_given = false;
    if (result.isTensor()) {
      for (const c10::IValue& argument : arguments) {
        is_given |= argument.isTensor() && argument.toTensor().is_same(result.toTensor());
      }
    }
    results.push_back(is_given ? result : to_device(result));
  }
  return results;
}

}  // namespace fedhpc::standin
