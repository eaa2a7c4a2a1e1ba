#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// The way weights are drawn. Norms always start at scale 1 and shift 0, batch norm at mean 0, variance 1.
enum class InitRule {
  Auto,        ///< those of model.file, for other models as in Torch
  Torch,       ///< weights and biases uniform in +-1/sqrt(fan_in)
  Normal01,    ///< weights N(0, 0.01^2), biases 0
  KaimingOut,  ///< weights N(0, 2 / fan_out), biases as in Torch
  Xavier,      ///< weights uniform in +-sqrt(6 / (fan_in + fan_out)), biases as in Torch
  Keras,       ///< weights as in Xavier, biases 0
  Orthogonal   ///< weights [out, the others] with orthonormal rows or columns, biases as in Torch
};

enum class NormChoice { Auto, None, Batch, Group };  ///< Auto: the family's own
enum class BiasChoice { Auto, True, False };         ///< Auto: the family's own
enum class Stem { Cifar, Imagenet };
enum class Places { Last, All };  ///< of a sequence, after which a class is predicted
/// The way a model of a file trains: many clients at a time by layers of ours, or one after the
/// other by LibTorch's autograd.
enum class Backend { Batched, Autograd };

/// Holds where the model's name is one of a model of images.
Condition of_image_model();
/// Holds where it is one that may have batch norm.
Condition of_model_with_images();

/// The model that is taken from a result file: the one its run began with, where the file has it, or
/// the one it ended with.
enum class InitState { Initial, Final };

/// The `model.*` keys.
struct ModelOptions {
  std::string name = "dnn";
  std::vector<std::int64_t> hidden{100};
  InitRule init = InitRule::Auto;
  NormChoice norm = NormChoice::Auto;
  std::int64_t groups = 2;  ///< of channels, for group norm
  BiasChoice bias = BiasChoice::Auto;
  Stem stem = Stem::Cifar;
  double width = 1;                        ///< factor on every number of channels
  std::optional<std::int64_t> vocabulary;  ///< rows of an embedding; none: the classes
  std::optional<std::int64_t> embedding;   ///< its columns; none: the family's own, as those below
  std::optional<std::int64_t> padding;     ///< its row without a gradient; -1: there is none
  std::optional<std::int64_t> layers;
  std::int64_t units = 256;
  Places places = Places::Last;
  std::int64_t heads = 8;
  std::int64_t feed_forward = 1536;
  double dropout = 0.1;
  std::string file;  ///< of model.name = file
  Backend backend = Backend::Batched;
  std::string init_file;  ///< empty: drawn, or those of `file`
  InitState init_state = InitState::Initial;
  at::ScalarType type = at::kFloat;  ///< of the rows: run.dtype, no key of its own

  void declare(OptionSet& options);
  bool by_autograd() const { return name == "file" && backend == Backend::Autograd; }
  /// The file with the initial weights, and its key; empty: they are drawn.
  const std::string& file_of_weights() const {
    return init_file.empty() && init == InitRule::Auto ? file : init_file;
  }
  const char* key_of_weights() const {
    return init_file.empty() ? "model.file" : "model.init_file";
  }
};

}  // namespace fedhpc
