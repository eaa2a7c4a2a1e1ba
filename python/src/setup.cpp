// What a method starts from, and what it passes on.

#include "setup.hpp"

#include <algorithm>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include <ATen/ops/empty.h>

#include "fedhpc/algorithms/catch_up.hpp"
#include "fedhpc/engine/metrics.hpp"
#include "fedhpc/training/options.hpp"

#include "bindings.hpp"
#include "blocks.hpp"

namespace fedhpc::python {

namespace {

/// CatchUp, which writes into the store of a run.
struct PyCatchUp {
  CatchUp catch_up;
  TimePtr time;
};

/// Notes a name below /rounds. Throws ValueError for one that is there.
void require_new_series(const PySetup& self, const std::string& verb, const std::string& name) {
  std::set<std::string>& series = self.session->series;
  if (series.empty()) {
    series.insert("round");
    for (const Metric& metric : metric_table()) series.insert(metric.name);
  }
  if (series.insert(name).second) return;
  const auto is_of_engine = [&](const Metric& metric) { return metric.name == name; };
  const bool of_engine = name == "round" || std::ranges::any_of(metric_table(), is_of_engine);
  throw nb::value_error(concat(verb, ": there is a series '", name, "'",
                               of_engine ? " of fedhpc's own" : " of this method",
                               "; give this one another name")
                            .c_str());
}

void add_metric(const PySetup& self, const std::string& name, const std::string& unit,
                const std::string& meaning, bool quantiles) {
  require_word("setup.add_metric", name);
  const std::vector<Metric> added =
      quantiles ? quantiles_of(name, unit, meaning) : std::vector<Metric>{{name, unit, meaning}};
  for (const Metric& metric : added) require_new_series(self, "setup.add_metric", metric.name);
  if (!self.session->metrics.insert(name).second) {
    throw nb::value_error(
        concat("setup.add_metric: '", name, "' is added already, with or without quantiles")
            .c_str());
  }
  if (quantiles) self.session->quantiles.insert(name);
  self.setup->add_metrics(added);
}

/// Puts the engine's CatchUp on a method's series and store.
PyCatchUp catch_up_of(const PySetup& setup) {
  require_new_series(setup, "fedhpc.CatchUp", "catch_up_bytes");
  const std::size_t before = setup.setup->store().scalar_names().size();
  CatchUp made(*setup.setup);
  if (setup.setup->store().scalar_names().size() == before) {
    throw nb::value_error(
        "fedhpc.CatchUp keeps numbers of the name 'last_round' in the store, which the method has "
        "taken; give those of the method another name");
  }
  return {std::move(made), setup.session->inside};
}

void require_factors(const std::string& verb, const PySetup& self) {
  if (self.session->run.factors) return;
  throw nb::value_error(
      concat(verb, " is for methods that name factorisations: factorisations = ['tucker']")
          .c_str());
}

PyCodec open_links(const PySetup& self, const PyRows& model, std::int64_t channel,
                   const std::string& ways) {
  const Setup& setup = *self.setup;  // the options are the method's, which may be gone after it
  if (!self.options->opens_links) {
    throw nb::value_error(
        "setup.open_links is for methods with options.averaging(payloads='changes' or 'models')");
  }
  if (channel < 0) refuse("setup.open_links", "a channel from 0 on", concat(channel));
  using Ways = LinkOptions::Ways;
  if (ways != "both" && ways != "up" && ways != "down") {
    refuse("setup.open_links", "ways 'both', 'up' or 'down'", concat("'", ways, "'"));
  }
  const Rows start = model.owned(wanted("setup.open_links", model, 1));
  std::unique_ptr<Codec> codec = self.options->averaging->links.open(setup, start, channel,
                                                                     ways == "both" ? Ways::Both
                                                                     : ways == "up" ? Ways::Up
                                                                                    : Ways::Down);
  return {std::move(codec)};
}

PyOptimizer optimizer_of(const PySetup& self, nb::handle layout, std::optional<double> lr) {
  StepRule rule = self.setup->training().step_rule();
  if (lr) {
    require_not_negative("setup.optimizer", "lr", *lr);
    rule.lr = *lr;
    rule.scheduled = false;
  }
  return {std::make_shared<RowOptimizer>(rule, to_layout(layout))};
}

void bind_train_options(nb::module_& core) {
  nb::class_<TrainOptions>(core, "TrainOptions", "The train.* keys of the run.")
      .def_ro("batch_size", &TrainOptions::batch_size,
              "Samples of a batch; 0: all of a client's samples.")
      .def_ro("local_steps", &TrainOptions::local_steps, "Batches per round, or 0.")
      .def_ro("local_epochs", &TrainOptions::local_epochs, "Epochs per round, or 0.")
      .def_ro("lr", &TrainOptions::lr, "train.lr.")
      .def_ro("momentum", &TrainOptions::momentum, "train.momentum.")
      .def_ro("weight_decay", &TrainOptions::weight_decay, "train.weight_decay.")
      .def_ro("clip_norm", &TrainOptions::clip_norm, "train.clip_norm; 0: none.");
}

/// What is visited. Throws TypeError for what is not of this type.
template <typename T>
T& visited(const char* verb, const std::string& name, nb::handle value, const char* type) {
  T* given = nullptr;
  if (!nb::try_cast(value, given) || given == nullptr) {
    throw nb::type_error(concat(verb, "('", name, "', ...) wants ", type).c_str());
  }
  return *given;
}

nb::object visit_rows(const PyState& self, const std::string& name, nb::object value) {
  const char* verb = "state.rows";
  const PyRows& rows = visited<PyRows>(verb, name, value, "Rows");
  Rows values = rows.owned(wanted(verb, rows, -1));
  self.visit(verb, name).rows(name, values);
  return self.state->restores() ? nb::cast(PyRows{values}) : value;
}

nb::object visit_edges(const PyState& self, const std::string& name, nb::object value) {
  const char* verb = "state.edges";
  EdgeRows values = wanted_edges(verb, visited<PyEdgeRows>(verb, name, value, "EdgeRows"));
  self.visit(verb, name).edges(name, values);
  return self.state->restores() ? nb::cast(PyEdgeRows{values}) : value;
}

nb::object visit_array(const PyState& self, const std::string& name, nb::object value) {
  Tensor values = to_tensor("state.array", value);
  const bool truths = values.scalar_type() == at::kBool;
  if (truths) values = values.to(at::kLong);  // a checkpoint has no bool
  self.visit("state.array", name).tensor(name, values);
  if (!self.state->restores()) return value;
  return to_numpy(truths ? values.to(at::kBool) : values.clone());
}

/// The numbers of the pieces of an optimizer, in host memory: int64 [n].
Tensor whole_numbers(const std::vector<std::int64_t>& values) {
  Tensor made = at::empty({std::ssize(values)}, at::kLong);
  std::ranges::copy(values, made.data_ptr<std::int64_t>());
  return made;
}

nb::object visit_optimizer(const PyState& self, const std::string& name, nb::object value) {
  const char* verb = "state.optimizer";
  auto& given = visited<PyOptimizer>(verb, name, value, "an Optimizer");
  RowOptimizer& optimizer = *given.optimizer;
  Tensor columns = whole_numbers({static_cast<std::int64_t>(optimizer.columns().with),
                                  static_cast<std::int64_t>(optimizer.columns().without)});
  Tensor steps = whole_numbers(optimizer.steps());
  Tensor states = optimizer.states();
  const at::TensorOptions& numbers = the_run().numbers;
  if (states.numel() == 0) {  // it has none, or none yet
    states = at::empty({optimizer.rule().state_rows(), steps.size(0), optimizer.layout()->size()},
                       numbers.device(at::kCPU));
  }
  self.visit(verb, name + ".columns").tensor(name + ".columns", columns);
  self.visit(verb, name + ".steps").tensor(name + ".steps", steps);
  self.visit(verb, name + ".states").tensor(name + ".states", states);
  if (!self.state->restores()) return value;
  const std::int64_t count = steps.size(0);
  const auto tag = [&](std::int64_t i) {
    return static_cast<Tag>(columns[i].item<std::int64_t>());
  };
  optimizer.reset(at::empty({count, optimizer.layout()->size()}, numbers.dtype(states.dtype())),
                  {.with = tag(0), .without = tag(1)});
  given.count = count > 0 ? count : -1;
  const auto* first = steps.const_data_ptr<std::int64_t>();
  optimizer.go_on_from({first, first + count}, states);
  return value;
}

void bind_state(nb::module_& core) {
  nb::class_<PyState>(
      core, "State",
      "A walk over all that a round passes to the next, by name: a checkpoint holds it, and "
      "resume puts it back. Each visit returns what it has: self.w = state.rows('w', self.w). "
      "What lies in the store is visited without a line.")
      .def_prop_ro(
          "restores", [](const PyState& self) { return self.state->restores(); },
          "Whether values are replaced: what a method makes of its state is made anew.")
      .def("rows", &visit_rows, nb::arg("name"), nb::arg("value"),
           nb::sig("def rows(self, name: str, value: Rows) -> Rows"),
           "Rows [n, P] that are the same on every rank; type and layout stay.")
      .def("edges", &visit_edges, nb::arg("name"), nb::arg("value"),
           nb::sig("def edges(self, name: str, value: EdgeRows) -> EdgeRows"),
           "The models of all edges.")
      .def("optimizer", &visit_optimizer, nb::arg("name"), nb::arg("value"),
           nb::sig("def optimizer(self, name: str, value: Optimizer) -> Optimizer"),
           "What an Optimizer has kept since its last reset, of rows that are the same on every "
           "rank. It goes on from there itself.")
      .def("array", &visit_array, nb::arg("name"), nb::arg("value"),
           "An array of float32, float64, int64 or bool that is the same on every rank.")
      .def("tensor", &visit_array, nb::arg("name"), nb::arg("value"), "The same as array().")
      .def(
          "number",
          [](const PyState& self, const std::string& name, double value) {
            self.visit("state.number", name).number(name, value);
            return value;
          },
          nb::arg("name"), nb::arg("value"), "A float that is the same on every rank.")
      .def(
          "integer",
          [](const PyState& self, const std::string& name, std::int64_t value) {
            self.visit("state.integer", name).integer(name, value);
            return value;
          },
          nb::arg("name"), nb::arg("value"), "A whole number that is the same on every rank.");
}

void bind_catch_up(nb::module_& core) {
  nb::class_<PyCatchUp>(
      core, "CatchUp",
      "Counts what participants need of the rounds they have missed, where the server sends one "
      "message of changes in every round: the series catch_up_bytes, beside the round's bytes.")
      .def(
          "__init__",
          [](PyCatchUp* self, const PySetup& setup) { new (self) PyCatchUp(catch_up_of(setup)); },
          nb::arg("setup"), "Keeps the last round of each client in the store.")
      .def(
          "note",
          [](PyCatchUp& self, const PyBlock& block, std::int64_t message, std::int64_t whole) {
            self.time->check();
            Block& here = block.get();
            self.catch_up.note(here, here.round(), message, whole);
          },
          nb::arg("block"), nb::arg("message"), nb::arg("whole"),
          "The block's clients take part: each has missed messages of so many bytes, or needs "
          "the whole model where that is less.");
}

}  // namespace

StateVisitor& PyState::visit(const std::string& verb, const std::string& name) const {
  require_word(verb, name);
  if (name == "best_accuracy" || name == "clients" || name == "partial") {
    throw nb::value_error(
        concat(verb, ": '", name, "' is a name of fedhpc's own in a checkpoint; take another")
            .c_str());
  }
  if (!names->insert(name).second) {
    throw nb::value_error(
        concat(verb, ": '", name, "' is visited twice; give the two names").c_str());
  }
  return *state;
}

void bind_setup(nb::module_& core) {
  bind_train_options(core);
  bind_state(core);
  nb::class_<PySetup>(core, "Setup",
                      "What a method starts from. It is over when initialise() returns; what it "
                      "gave can be used while the method runs.")
      .def(
          "initial_model", [](const PySetup& self) { return PyRows{self.setup->initial_model()}; },
          "The initial global model [1, P]: drawn, or read from model.init_file.")
      .def(
          "initial_edges",
          [](const PySetup& self) { return PyEdgeRows{self.setup->initial_edges()}; },
          "The initial model for every edge of this rank.")
      .def(
          "initial_factors",
          [](const PySetup& self) {
            require_factors("setup.initial_factors", self);
            return PyRows{self.setup->initial_factors()};
          },
          "The initial factors [1, Q], of a method that names factorisations.")
      .def(
          "factor_map",
          [](const PySetup& self) {
            require_factors("setup.factor_map", self);
            return PyFactorMap{{&self.setup->factor_map(), self.session->inside}};
          },
          "The map from factors to weights, of a method that names factorisations.")
      .def_prop_ro(
          "training", [](const PySetup& self) { return self.setup->training(); },
          "The train.* keys.")
      .def("optimizer", &optimizer_of, nb::arg("layout"), nb::arg("lr") = nb::none(),
           "An Optimizer of train.*'s rule for rows of a layout (or of rows that have it); with "
           "`lr` in the place of train.lr, which no schedule changes.")
      .def("open_links", &open_links, nb::arg("model"), nb::arg("channel") = 0,
           nb::arg("ways") = "both",
           "Opens the links of a payload, of a method with options.averaging(payloads='changes' or "
           "'models'), and returns the Codec of its uploads. model: rows [1, P] that clients know "
           "at the start. channel: the payload's number, where a round has several. ways: 'both', "
           "'up' or 'down'.")
      .def_prop_ro(
          "clients", [](const PySetup& self) { return self.setup->clients(); },
          "N, the clients of all ranks.")
      .def_prop_ro(
          "seed", [](const PySetup& self) { return self.setup->seed(); },
          "run.seed, the first word of every draw's key.")
      .def_prop_ro(
          "store",
          [](const PySetup& self) {
            return PyStore{&self.setup->store(), self.session->inside, self.setup.time()};
          },
          "Rows and numbers of this rank's clients between rounds.")
      .def("add_metric", &add_metric, nb::arg("name"), nb::arg("unit") = "1",
           nb::arg("meaning") = "", nb::arg("quantiles") = false,
           "One more series below /rounds, which block.note, round.note or edges.note fill; "
           "quantiles: its _p10, _p50 and _p90 over clients instead of the mean.");
  bind_catch_up(core);
}

}  // namespace fedhpc::python
