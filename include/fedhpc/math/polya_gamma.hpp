#pragma once

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

/// Draws from the Polya-Gamma distribution PG(1, z), exact for any z: Devroye's method (2009) as
/// Polson, Scott and Windle give it (J. American Statistical Association 108, 2013, Algorithm 1).
/// The mean is tanh(z/2) / (2z). Takes as many of `draws` as it needs; NaN for a z that is not
/// finite, which takes none.
double polya_gamma(double z, Draws& draws);

}  // namespace fedhpc
