#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/io/results_writer.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/options.hpp"

namespace fedhpc {

/// Takes some clients' models, row by row.
using VisitModels = std::function<void(std::span<const std::int64_t> clients, const Rows& models)>;

/// The content of /model: the global model [1, P] and the factors behind it [1, Q]; values
/// undefined where a method has none.
struct ModelRecord {
  Rows global;
  Rows factors;

  /// The parts that are there, by the name of their group below /model: "global", "factors"
  /// (without what passes through from the global model).
  std::vector<std::pair<std::string, std::vector<NamedTensor>>> parts() const;
  std::int64_t bytes() const;
};

/// Whether a model file has weights: without them it says what the network is, and they are drawn.
bool holds_weights(const std::string& path);

/// Reads the file of `key`: /model/init/global, else or where `state` is Final /model/global. Throws
/// DataError naming the file and the parameter that is missing, superfluous or of another shape.
Rows read_initial_model(const std::string& key, const std::string& path, const LayoutPtr& layout,
                        at::ScalarType type, InitState state = InitState::Initial);

/// Replaces the factors in `row` [1, Q] by those of model.init_file: /model/init/factors, else
/// likewise /model/factors. Returns whether there were any. Throws DataError for one that the model
/// does not have, or of another shape.
bool read_initial_factors_(const std::string& path, const Rows& row,
                           InitState state = InitState::Initial);

/// Returns the parameters of a row [1, P] as tensors in their own shapes.
std::vector<NamedTensor> parameters_of(const Rows& row);

}  // namespace fedhpc
