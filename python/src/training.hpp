#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/factorisations/update_map.hpp"
#include "fedhpc/training/local_step.hpp"
#include "fedhpc/training/row_optimizer.hpp"

#include "rows.hpp"

namespace fedhpc::python {

/// A codec as Python has it.
struct PyCodec {
  std::shared_ptr<const Codec> codec;
  LayoutPtr layout = {};  // of its rows, null: any
};

/// The codec of an argument, for these rows: None is dense, a name makes one. `made` keeps that
/// alive.
const Codec& to_codec(std::string_view verb, nb::handle value, const Rows& rows,
                      std::shared_ptr<const Codec>& made);

/// A row optimizer, how many rows it has been reset for (-1: none yet), and how often.
struct PyOptimizer {
  std::shared_ptr<RowOptimizer> optimizer;
  std::int64_t count = -1;
  std::int64_t resets = 0;

  void was_reset(std::int64_t rows) {
    count = rows;
    ++resets;
  }
};

/// A map from rows of factors to models; that of the engine has its time.
struct PyRowMap {
  RowMap* map;
  TimePtr time;

  RowMap& get() const {
    time->check();
    return *map;
  }
};
struct PyFactorMap : PyRowMap {
  FactorMap& of_factors() const { return static_cast<FactorMap&>(get()); }
};
struct PyUpdateMap : PyRowMap {
  std::shared_ptr<UpdateMap> owned;
};

/// Throws ValueError unless a map gives the run's models.
void wanted_full(const std::string& verb, const PyRowMap& map);

/// The terms that a verb adds to the loss, as its keywords give them.
Penalty penalty_of(const std::string& verb, double mu, const PyRows* centre, double gamma,
                   double rho, std::int64_t count, const LayoutPtr& layout);

/// One local step in its time. `gradients`: the time of those it gave last.
struct PyStep {
  Held<LocalStep> step;
  std::int64_t clients;
  bool calls_python = false;  // a verb of it calls a loss or a term of Python
  TimePtr gradients = time_of(
      "these gradients are over: they last until the step's next verb; clone() keeps a copy");

  /// Throws from inside of a loss or a term: the verb that calls it is between two passes there.
  LocalStep& between_verbs() const {
    if (calls_python) {
      throw std::runtime_error(
          "a step was asked for another verb from inside of the loss or the term of one; only "
          "step.embedding can be asked there");
    }
    return *step;
  }
  /// What works with gradients ends those of before.
  LocalStep& anew() {
    LocalStep& here = between_verbs();
    end_gradients();
    return here;
  }
  void end_gradients() {
    gradients->end();
    gradients = std::make_shared<Time>(
        "these gradients are over: they last until the step's next verb; clone() keeps a copy");
  }
};

}  // namespace fedhpc::python
