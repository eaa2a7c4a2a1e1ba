#pragma once

#include <vector>

namespace fedhpc {

/// Returns the value below which `fraction` of the values lie, interpolated linearly between the
/// two nearest ranks as numpy.percentile does by default. NaN without values, and
/// where one is NaN.
double percentile(std::vector<double> values, double fraction);

}  // namespace fedhpc
