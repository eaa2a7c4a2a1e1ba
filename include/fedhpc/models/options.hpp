#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

/// The way weights are drawn. Norms always start at scale 1 and shift 0, batch norm at mean 0, variance 1.
enum class InitRule {
  Torch,      ///< weights and biases uniform in +-1/sqrt(fan_in)
  Normal01,   ///< weights N(0, 0.01^2), biases 0
  KaimingOut  ///< weights N(0, 2 / fan_out), biases as in Torch
};

enum class NormChoice { Auto, None, Batch, Group };  ///< Auto: the family's own
enum class BiasChoice { Auto, True, False };         ///< Auto: the family's own
enum class Stem { Cifar, Imagenet };

/// Holds where the model's name is one of a model of images.
Condition of_image_model();

/// The `model.*` keys.
struct ModelOptions {
  std::string name = "dnn";
  std::vector<std::int64_t> hidden{100};
  InitRule init = InitRule::Torch;
  NormChoice norm = NormChoice::Auto;
  std::int64_t groups = 2;  ///< of channels, for group norm
  BiasChoice bias = BiasChoice::Auto;
  Stem stem = Stem::Cifar;
  double width = 1;       ///< factor on every number of channels
  std::string init_file;  ///< empty: drawn

  void declare(OptionSet& options);
};

}  // namespace fedhpc
