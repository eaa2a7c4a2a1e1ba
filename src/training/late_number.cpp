#include "fedhpc/training/late_number.hpp"

#include "fedhpc/core/device.hpp"

namespace fedhpc {

void LateNumbers::wait() { values_ = on_host(values_); }

double LateNumbers::at(std::size_t i) {
  wait();
  return values_.const_data_ptr<double>()[i];
}

}  // namespace fedhpc
