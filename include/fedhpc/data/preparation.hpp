#pragma once

#include <vector>

#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/options.hpp"

namespace fedhpc {

/// Prepares a sample's raw numbers x for a model. By data.standardize:
///
///   none      x
///   unit      x / 255
///   half      (x/255 - 1/2) / (1/2)
///   scalar    (x/255 - m) / s, one m and s for all pixels
///   channel   (x/255 - m) / s, m and s of the pixel's channel
///   pixel     (x - m) / (s + .001), mean and standard deviation (of the population, not of a
///             sample) of this very pixel or feature over all samples, official train and test
///
/// All in float64, the last three as (x - mean) * factor, then rounded to the run's dtype. none and
/// unit take real numbers as they are; half, scalar and channel are for pixels. The constants of
/// scalar and channel are those of a data set's training part, for its test samples too. (Some
/// public code uses constants of the test part for these: Fashion-MNIST .2868/.3524, SVHN
/// .4560/.2244. A model then sees the same image differently in training and in test.)
///
/// data.augment = crop_flip moves training images by up to 4 pixels first. With `pixel` that suits
/// data whose every pixel varies. Where a pixel is 0 in all samples, as at MNIST's border, a moved
/// stroke becomes 1000 x.
struct Preparation {
  Preparation(Standardize by_rule) : rule(by_rule) {}  // NOLINT: a rule without constants is enough

  Standardize rule;
  std::vector<double> mean;         // [D] of raw numbers; empty for none, unit and half
  std::vector<double> factor;       // [D], or empty
  Augment augment = Augment::None;  ///< of training batches
};

/// Computes the constants; the same on every rank. `pixel` costs two passes over all samples, in
/// parts. Throws ConfigError for scalar and channel of a data set that has no such constants, and
/// for data.augment without images in pixels.
Preparation make_preparation(const DataOptions& options, const Dataset& dataset);

}  // namespace fedhpc
