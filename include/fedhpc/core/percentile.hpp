#pragma once

#include <vector>

namespace fedhpc {

/// The value below which `fraction` of the values lie, linearly interpolated between the two
/// nearest ranks as numpy.percentile does by default; NaN of none.
double percentile(std::vector<double> values, double fraction);

}  // namespace fedhpc
