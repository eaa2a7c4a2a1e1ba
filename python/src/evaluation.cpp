// Evaluation of models.

#include "evaluation.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include "bindings.hpp"

namespace fedhpc::python {

namespace {

/// Throws ValueError for what is handed over a second time: the last alone would be scored.
void require_first(const char* verb, bool handed) {
  if (!handed) return;
  throw nb::value_error(concat(verb, " was called before; it hands over models once").c_str());
}

/// C clients that are evaluated together, in their time.
struct PyEvaluationBlock {
  Held<EvaluationBlock> block;
  std::shared_ptr<bool> evaluated = std::make_shared<bool>(false);

  std::int64_t count() const { return static_cast<std::int64_t>(block->clients().size()); }
};

PyRows adapt(PyEvaluationBlock& self, const PyRows& models, std::optional<std::int64_t> steps,
             PyOptimizer* optimizer) {
  EvaluationBlock& block = *self.block;
  const Rows from = wanted_models("block.adapt", models, self.count(), /*or_one=*/true);
  if (steps.has_value() != (optimizer != nullptr)) {
    throw nb::value_error("block.adapt takes steps and an optimizer, or neither");
  }
  if (!steps) {
    const nb::gil_scoped_release unlocked;
    return {block.adapt(from)};
  }
  if (*steps < 1) refuse("block.adapt", "steps of at least 1", concat(*steps));
  if (!same_fields(optimizer->optimizer->layout(), from.layout)) {
    refuse("block.adapt", "an optimizer of rows of the model", "one of another layout");
  }
  optimizer->was_reset(-1);
  const nb::gil_scoped_release unlocked;
  return {block.adapt(from, *steps, *optimizer->optimizer)};
}

/// A classifier of Python: what it would see -> logits.
Classifier classifier_of(const nb::object& function) {
  return [kept = kept_object(function)](const Tensor& embedding) {
    const nb::gil_scoped_acquire lock;
    return to_matrix("a classifier", kept->operator()(to_numpy(embedding, false)),
                     embedding.size(0), -1);
  };
}

void evaluate(PyEvaluationBlock& self, const PyRows& models, nb::object fit) {
  EvaluationBlock& block = *self.block;
  const Rows rows = models.owned(wanted_models("block.evaluate", models, self.count()));
  require_first("block.evaluate", *self.evaluated);
  *self.evaluated = true;
  if (fit.is_none()) {
    const nb::gil_scoped_release unlocked;
    block.evaluate(rows);
    return;
  }
  const auto of_client = [&](std::int64_t c, const Embedded& training) {
    const nb::gil_scoped_acquire lock;
    return classifier_of(fit(c, to_numpy(training.values), to_numpy(training.labels)));
  };
  const nb::gil_scoped_release unlocked;
  block.evaluate(rows, of_client);
}

void each_block(const PyEvaluation& self, const nb::callable& work) {
  Evaluation& evaluation = *self.evaluation;
  require_first("evaluation.each_block", self.handed->personal);
  self.handed->personal = true;
  const nb::gil_scoped_release unlocked;
  evaluation.each_block([&](EvaluationBlock& block) {
    const nb::gil_scoped_acquire lock;
    const TimePtr time = time_of(
        "this block is over: a block of an evaluation can be used only in the function given to "
        "each_block");
    const During during(time);
    const PyEvaluationBlock given{{block, time}};
    work(given);
    if (!*given.evaluated) {
      throw nb::value_error(
          "evaluation.each_block: the function has handed over no models of its block; it has to "
          "call block.evaluate");
    }
  });
}

void bind_evaluation_block(nb::module_& core) {
  nb::class_<PyEvaluationBlock>(
      core, "EvaluationBlock",
      "C clients that are evaluated together, participants of the round or not. It is over when "
      "the function given to each_block returns.")
      .def_prop_ro(
          "clients", [](const PyEvaluationBlock& self) { return to_numpy(self.block->clients()); },
          "The clients' ids: int64 [C].")
      .def("__len__", &PyEvaluationBlock::count)
      .def_prop_ro(
          "round", [](const PyEvaluationBlock& self) { return self.block->round(); },
          "The round after which they are evaluated.")
      .def("adapt", &adapt, nb::arg("models"), nb::arg("steps") = nb::none(),
           nb::arg("optimizer") = nb::none(),
           "Hands each client its row of models [C, P], or the one of all [1, P], and returns the "
           "adapted models [C, P]: by `steps` steps of the optimizer, started afresh, or by a "
           "whole local training. No training sees these batches; it counts nowhere.")
      .def(
          "as_received",
          [](const PyEvaluationBlock& self, const PyRows& models) {
            EvaluationBlock& block = *self.block;
            const Rows from =
                models.owned(wanted_models("block.as_received", models, self.count()));
            const nb::gil_scoped_release unlocked;
            return PyRows{block.as_received(from)};
          },
          nb::arg("models"),
          "Models [C, P] as clients receive them: with their own batch-norm statistics where "
          "those do not travel.")
      .def("evaluate", &evaluate, nb::arg("models"), nb::arg("fit") = nb::none(),
           "Scores the clients' own models [C, P]. fit(c, values, labels) makes a classifier of "
           "client number c from what the head would see of its training samples (float64 [n, E], "
           "int64 [n]): a function from [n, E] to logits [n, K].");
}

}  // namespace

void bind_evaluation(nb::module_& core) {
  bind_evaluation_block(core);
  nb::class_<PyEvaluation>(
      core, "Evaluation",
      "A method hands over its models here, to be scored and kept, each once. State never changes "
      "here.")
      .def(
          "global_model",
          [](const PyEvaluation& self, const PyRows& model) {
            Evaluation& evaluation = *self.evaluation;
            const Rows global = wanted_models("evaluation.global_model", model, 1);
            require_first("evaluation.global_model", self.handed->global);
            self.handed->global = true;
            const nb::gil_scoped_release unlocked;
            evaluation.global(global);
          },
          nb::arg("model"),
          "The global model [1, P], scored on all test data, and on each client's own where the "
          "method has no personal models.")
      .def(
          "shared",
          [](const PyEvaluation& self, const PyRows& columns) {
            Evaluation& evaluation = *self.evaluation;
            const Rows shared = wanted("evaluation.shared", columns, 1);
            require_first("evaluation.shared", self.handed->shared);
            evaluation.shared(shared);
            self.handed->shared = true;
          },
          nb::arg("columns"),
          "What all clients' models share [1, Q], where models = 'shared'; kept as /model/global.")
      .def(
          "factors",
          [](const PyEvaluation& self, const PyRows& factors) {
            const LayoutPtr& layout = the_run().factors;
            if (!layout) {
              throw nb::value_error("evaluation.factors is for methods that name factorisations");
            }
            Evaluation& evaluation = *self.evaluation;
            const Rows handed = wanted("evaluation.factors", factors, 1, layout);
            require_first("evaluation.factors", self.handed->factors);
            self.handed->factors = true;
            evaluation.factors(handed);
          },
          nb::arg("factors"), "The factors [1, Q] behind the global model, kept beside it.")
      .def(
          "edges",
          [](const PyEvaluation& self, const PyEdgeRows& models) {
            Evaluation& evaluation = *self.evaluation;
            const EdgeRows edges = wanted_edges("evaluation.edges", models);
            require_first("evaluation.edges", self.handed->edges);
            self.handed->edges = true;
            const nb::gil_scoped_release unlocked;
            evaluation.edges(edges);
          },
          nb::arg("models"), "The edges' models, scored on the test samples of their clients.")
      .def("each_block", &each_block, nb::arg("work"),
           "Calls work(block) for all clients of this rank, block by block; block.evaluate scores "
           "their models. It may stand as a decorator: @evaluation.each_block.");
}

}  // namespace fedhpc::python
