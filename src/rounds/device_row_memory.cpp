#include "fedhpc/rounds/device_row_memory.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// Waits for copies between pinned memory and a device that are still under way.
void finish_copies() {
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  device.getStream(device.getDevice()).synchronize();
}

}  // namespace

void* TensorRowMemory::allocate(std::int64_t bytes) {
  try {
    Tensor block = make(bytes);
    void* address = block.data_ptr();
    blocks_.emplace(address, std::move(block));
    return address;
  } catch (const c10::Error&) {  // out of memory
    return nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

void TensorRowMemory::free(void* memory) noexcept { blocks_.erase(memory); }

Tensor TensorRowMemory::part(const void* memory, std::int64_t offset, const Tensor& like) const {
  return blocks_.at(memory)
      .narrow(0, offset, static_cast<std::int64_t>(like.nbytes()))
      .view(like.scalar_type());
}

void TensorRowMemory::copy_in(void* memory, std::int64_t offset, const void* from,
                              std::int64_t bytes) {
  const Tensor host = at::from_blob(const_cast<void*>(from), {bytes}, at::kByte);
  finish_copies();
  part(memory, offset, host).copy_(host);
}

void TensorRowMemory::copy_out(const void* memory, std::int64_t offset, void* to,
                               std::int64_t bytes) const {
  const Tensor host = at::from_blob(to, {bytes}, at::kByte);
  finish_copies();
  host.copy_(part(memory, offset, host));
}

void TensorRowMemory::copy_rows_in(void* memory, std::int64_t offset, const Tensor& rows) {
  part(memory, offset, rows).copy_(rows.reshape({-1}), /*non_blocking=*/true);
}

void TensorRowMemory::copy_rows_out(const void* memory, std::int64_t offset,
                                    const Tensor& rows) const {
  rows.view({-1}).copy_(part(memory, offset, rows), /*non_blocking=*/true);
}

Tensor TensorRowMemory::rows_in_place(const void* memory, std::int64_t offset,
                                      const Tensor& row) const {
  const Tensor here = part(memory, offset, row);
  return here.device() == row.device() ? here.view(row.sizes()) : Tensor();
}

Tensor DeviceRowMemory::make(std::int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
}

}  // namespace fedhpc
