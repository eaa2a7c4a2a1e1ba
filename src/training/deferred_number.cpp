#include "fedhpc/training/deferred_number.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "fedhpc/comm/gpu_library.hpp"

namespace fedhpc {

DeferredNumbers::DeferredNumbers(const Tensor& values)
    : here_(gpu_library().pinned(values.sizes(), at::kDouble)) {
  here_.copy_(values, /*non_blocking=*/true);
  coming_.emplace(values.device().type());
  coming_->record(c10::impl::VirtualGuardImpl(values.device().type()).getStream(values.device()));
}

void DeferredNumbers::wait() {
  if (coming_) coming_->synchronize();
  coming_.reset();
}

double DeferredNumbers::at(std::size_t i) {
  wait();
  return here_.const_data_ptr<double>()[i];
}

}  // namespace fedhpc
