#pragma once

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/math/device_kernels.hpp"

namespace fedhpc::standin {

/// The product of a table's arguments on addresses of the host, factors rounded as the precision
/// asks.
void product_on_host(const DeviceProduct& of);

}  // namespace fedhpc::standin
