#pragma once

#include "fedhpc/data/device_kernels.hpp"
#include "fedhpc/factorisations/device_kernels.hpp"
#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/rounds/device_kernels.hpp"
#include "fedhpc/training/device_kernels.hpp"

namespace fedhpc {

/// The kernels of all rooms: what a module's table is.
class AllKernels : public DeviceKernels,
                   public MathKernels,
                   public ModelKernels,
                   public DataKernels,
                   public TrainingKernels,
                   public RoundKernels,
                   public FactorKernels {};

}  // namespace fedhpc
