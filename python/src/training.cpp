// Local training: codecs, optimizers, steps.

#include "training.hpp"

#include <cmath>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"

#include "bindings.hpp"
#include "engine_calls.hpp"

namespace fedhpc::python {

void wanted_full(const std::string& verb, const PyRowMap& map) {
  if (same_fields(map.get().full(), the_run().model)) return;
  refuse(verb, "a map to the run's models", "one to another layout");
}

Penalty penalty_of(const std::string& verb, double mu, const PyRows* centre, double gamma,
                   double rho, std::int64_t count, const LayoutPtr& layout) {
  Penalty penalty{.mu = mu, .gamma = gamma, .rho = rho};
  if (!(rho > 0 && std::isfinite(rho))) refuse(verb, "rho above 0", concat(rho));
  require_not_negative(verb, "mu", mu);
  require_not_negative(verb, "gamma", gamma);
  if (centre != nullptr) {
    // A step's own gradients would be overwritten while they are the centre of others.
    penalty.centre = centre->owned(wanted(verb + "'s centre", *centre, count, layout));
  } else if (mu != 0) {
    throw nb::value_error(concat(verb, " wants a centre where mu is not 0").c_str());
  }
  return penalty;
}

namespace {

PyOptimizer make_optimizer(const std::string& rule, nb::handle layout, double lr, double momentum,
                           double weight_decay, bool decay_biases, bool scheduled,
                           double clip_norm) {
  require_not_negative("Optimizer", "clip_norm", clip_norm);
  require_not_negative("Optimizer", "lr", lr);
  require_not_negative("Optimizer", "momentum", momentum);
  require_not_negative("Optimizer", "weight_decay", weight_decay);
  StepRule step{.lr = lr,
                .momentum = momentum,
                .weight_decay = weight_decay,
                .decay_biases = decay_biases,
                .clip_norm = clip_norm,
                .scheduled = scheduled};
  if (momentum >= 1) refuse("Optimizer", "momentum below 1", concat(momentum));
  if (rule == "sgd") {
    step.kind = momentum > 0 ? OptimizerKind::Momentum : OptimizerKind::Sgd;
  } else if (rule == "momentum") {
    step.kind = OptimizerKind::Momentum;
  } else if (rule == "nesterov") {
    step.kind = OptimizerKind::Nesterov;
  } else if (rule == "adam") {
    step.kind = OptimizerKind::Adam;
  } else {
    refuse("Optimizer", "sgd, momentum, nesterov or adam", "'" + rule + "'");
  }
  if (rule != "sgd" && (rule == "adam") == (momentum > 0)) {
    refuse("Optimizer", rule == "adam" ? "no momentum with adam" : "momentum above 0 with " + rule,
           concat(momentum));
  }
  return {std::make_shared<RowOptimizer>(step, to_layout(layout))};
}

/// Throws ValueError unless an optimizer has been reset for so many rows.
void require_reset(const std::string& verb, const PyOptimizer& optimizer, std::int64_t count) {
  if (optimizer.count == count) return;
  throw nb::value_error(concat(verb, " wants an optimizer that is reset for ", count,
                               count == 1 ? " row" : " rows",
                               ": call optimizer.reset(rows) before the steps")
                            .c_str());
}

void bind_optimizer(nb::module_& core) {
  nb::class_<PyOptimizer>(
      core, "Optimizer",
      "Moves rows against their gradients as one PyTorch optimizer per client does; every row has "
      "a state of its own.")
      .def(
          "__init__",
          [](PyOptimizer* self, const std::string& rule, nb::handle layout, double lr,
             double momentum, double weight_decay, bool decay_biases, bool scheduled,
             double clip_norm) {
            new (self) PyOptimizer(make_optimizer(rule, layout, lr, momentum, weight_decay,
                                                  decay_biases, scheduled, clip_norm));
          },
          nb::arg("rule"), nb::arg("layout"), nb::arg("lr"), nb::arg("momentum") = 0.0,
          nb::arg("weight_decay") = 0.0, nb::arg("decay_biases") = true,
          nb::arg("scheduled") = false, nb::arg("clip_norm") = 0.0,
          "rule: sgd (with momentum above 0 the same as momentum), momentum, nesterov or adam. "
          "layout: of the rows it moves, or rows that "
          "have it. scheduled: lr is train.lr, which follows train.lr_schedule. clip_norm: the "
          "longest gradient of a row (0: any), as by torch.nn.utils.clip_grad_norm_.")
      .def_prop_ro(
          "lr", [](const PyOptimizer& self) { return self.optimizer->rule().lr; },
          "The rate of its rule.")
      .def(
          "reset",
          [](PyOptimizer& self, const PyRows& rows, nb::handle columns) {
            const Rows like = wanted("optimizer.reset", rows, -1, self.optimizer->layout());
            self.optimizer->reset(like.values, to_columns(columns));
            self.was_reset(like.count());
          },
          nb::arg("rows"), nb::arg("columns") = nb::none(),
          "Forgets everything and makes room for as many rows as these; it will move only these "
          "columns (None: all that are trainable).")
      .def(
          "step",
          [](PyOptimizer& self, const PyRows& rows, const PyRows& gradients) {
            const LayoutPtr& layout = self.optimizer->layout();
            const Rows moved = wanted("optimizer.step", rows, -1, layout);
            require_reset("optimizer.step", self, moved.count());
            const Rows against = wanted_like("optimizer.step", gradients, rows);
            self.optimizer->step_(moved.values, apart("optimizer.step", against, moved).values);
          },
          nb::arg("rows"), nb::arg("gradients"),
          "Moves all rows [C, P] one step, in place; reset() comes before.")
      .def("_kept", [](const PyOptimizer& self) {  // for _left_out.py
        const RowOptimizer& optimizer = *self.optimizer;
        return nb::make_tuple(self.resets, optimizer.steps(), to_numpy(optimizer.states()));
      });
}

PyRows gradient(PyStep& self, const PyRows& at, double mu, const PyRows* centre, double gamma,
                double rho, std::int64_t draw, nb::handle columns) {
  const Rows models = at.owned(wanted_models("step.gradient", at, self.clients));
  const Penalty penalty =
      penalty_of("step.gradient", mu, centre, gamma, rho, self.clients, models.layout);
  if (draw < 0) refuse("step.gradient", "a draw from 0 on", concat(draw));
  if (draw >= LocalStep::kPassesPerDraw / 2) {
    refuse("step.gradient", concat("a draw below ", LocalStep::kPassesPerDraw / 2), concat(draw));
  }
  LocalStep& step = self.anew();
  const Columns moving = to_columns(columns);
  const nb::gil_scoped_release unlocked;
  return {{step.gradient(models, penalty, draw, moving), models.layout}, self.gradients};
}

PyRows gradient_below_head(PyStep& self, const PyRows& at, const nb::callable& loss) {
  const Rows models = at.owned(wanted_models("step.gradient_below_head", at, self.clients));
  LocalStep& step = self.anew();
  const EmbeddingLoss of_batch = [&](std::int64_t c, const Tensor& embedding,
                                     std::span<const std::int64_t> labels, const Tensor& gradient) {
    const nb::gil_scoped_acquire lock;
    return to_number("what the loss of step.gradient_below_head returns",
                     loss(c, to_numpy(embedding.clone()), to_numpy(labels), to_numpy(gradient)));
  };
  const Flagged calling(self.calls_python);
  const nb::gil_scoped_release unlocked;
  return {{step.gradient_below_head(models, of_batch), models.layout}, self.gradients};
}

/// Throws ValueError unless an optimizer moves rows of this layout.
void wanted_optimizer(const std::string& verb, const PyOptimizer& optimizer,
                      const LayoutPtr& layout) {
  const LayoutPtr& own = optimizer.optimizer->layout();
  if (same_fields(own, layout)) return;
  refuse(verb, concat("an optimizer of rows of ", layout->size(), " columns like these"),
         concat("one of ", own->size(), " columns of another layout"));
}

NumpyArray embedding(PyStep& self, const PyRows& at) {
  const Rows models = wanted_models("step.embedding", at, self.clients);
  LocalStep& step = *self.step;
  self.end_gradients();
  return to_numpy(without_lock([&] { return on_host(step.embedding(models)).to(at::kDouble); }));
}

/// A term that reads and writes float64 numbers of one client at a time, in host memory.
EmbeddingTerm to_term(const nb::callable& term) {
  return [&term](const BatchRun& run, const Tensor& embedding, const Tensor& gradient) {
    const Tensor seen = on_host(embedding).to(at::kDouble).clone();
    const Tensor added = at::zeros_like(seen);
    const nb::gil_scoped_acquire lock;
    for (std::int64_t c = 0; c < run.count; ++c) {
      term(run.first + c, to_numpy(seen[c]), to_numpy(added[c]));
    }
    gradient.add_(added.to(gradient.options()));
  };
}

/// Throws ValueError where an optimizer moves some columns of rows, and something is added to all.
void require_whole(const std::string& verb, const PyOptimizer& optimizer, bool adds) {
  if (!adds || optimizer.optimizer->columns().all()) return;
  throw nb::value_error(
      concat(verb, " takes a penalty or a term only where whole models move; reset the optimizer ",
             "without columns")
          .c_str());
}

/// The penalty with a centre that stays where it is while `moved` moves.
Penalty with_still_centre(Penalty penalty, const Rows& moved) {
  const Tensor& centre = penalty.centre.values;
  if (centre.defined() && centre.is_alias_of(moved.values)) {
    penalty.centre = penalty.centre.clone();
  }
  return penalty;
}

void descend(PyStep& self, const PyRows& rows, PyOptimizer& optimizer, const PyRowMap* map,
             double mu, const PyRows* centre, double gamma, double rho,
             const std::optional<nb::callable>& term) {
  const Rows moved = map == nullptr
                         ? wanted_models("step.descend", rows, self.clients)
                         : wanted("step.descend", rows, self.clients, map->get().factors());
  if (map != nullptr) wanted_full("step.descend", *map);
  wanted_optimizer("step.descend", optimizer, moved.layout);
  require_reset("step.descend", optimizer, self.clients);
  const Penalty penalty = with_still_centre(
      penalty_of("step.descend", mu, centre, gamma, rho, self.clients, moved.layout), moved);
  require_whole("step.descend", optimizer, penalty.any() || term);
  if (term && (map != nullptr || penalty.any())) {
    throw nb::value_error("step.descend takes a term without a map and without a penalty");
  }
  LocalStep& step = self.anew();
  if (term) {
    const Flagged calling(self.calls_python);
    const nb::gil_scoped_release unlocked;
    step.descend_(moved, *optimizer.optimizer, to_term(*term));
    return;
  }
  if (map != nullptr && penalty.any()) {
    throw nb::value_error("step.descend takes no penalty through a map");
  }
  RowMap* through = map == nullptr ? nullptr : &map->get();
  const nb::gil_scoped_release unlocked;
  if (through == nullptr) {
    step.descend_(moved, *optimizer.optimizer, penalty);
  } else {
    step.descend_(moved, *through, *optimizer.optimizer);
  }
}

void minimise(PyStep& self, const PyRows& rows, PyOptimizer& optimizer, std::int64_t steps,
              double accuracy, double mu, const PyRows* centre, double gamma, double rho) {
  const Rows moved = wanted_models("step.minimise", rows, self.clients);
  wanted_optimizer("step.minimise", optimizer, moved.layout);
  require_not_negative("step.minimise", "accuracy", accuracy);
  const Penalty penalty = with_still_centre(
      penalty_of("step.minimise", mu, centre, gamma, rho, self.clients, moved.layout), moved);
  require_whole("step.minimise", optimizer, penalty.any());
  if (steps < 1) refuse("step.minimise", "steps of at least 1", concat(steps));
  LocalStep& step = self.anew();
  {
    const nb::gil_scoped_release unlocked;
    step.minimise_(moved, *optimizer.optimizer, penalty, {.steps = steps, .accuracy = accuracy});
  }
  optimizer.was_reset(self.clients);
}

void take_step(PyStep& self, const PyRows& rows, const PyRows& gradients, PyOptimizer& optimizer) {
  const LayoutPtr& layout = optimizer.optimizer->layout();
  const Rows moved = wanted("step.step", rows, self.clients, layout);
  const Rows against =
      apart("step.step", wanted("step.step", gradients, self.clients, layout), moved);
  require_reset("step.step", optimizer, self.clients);
  LocalStep& step = self.between_verbs();
  const nb::gil_scoped_release unlocked;
  step.step_(moved.values, against.values, *optimizer.optimizer);
}

std::int64_t client_of(const PyStep& self, std::int64_t c) {
  if (c < 0 || c >= self.clients) throw nb::index_error("no such client of the block");
  return c;
}

void bind_step(nb::module_& core) {
  nb::class_<PyStep>(
      core, "LocalStep",
      "One local step of a block's C clients, with a batch for each client that has not run out "
      "of them; those that have are left as they are. It is over when the function given to "
      "each_step returns.\n\nGradients may be taken as often as needed, at any rows [C, P], each "
      "time on this batch (draw 0) or on further ones of the same sizes. The first counts into "
      "train_loss and moves batch norm's statistics. In the verbs mu/2 ||w - centre||^2 + gamma "
      "rho sum log cosh(w / rho) is added to the loss.")
      .def_prop_ro(
          "number", [](const PyStep& self) { return self.step->number(); },
          "Its number in the pass, from 0.")
      .def(
          "active", [](const PyStep& self) { return self.step->active(); },
          "A, the number of clients with a batch: they are the block's first, but in each_batch "
          "with "
          "train.stragglers, where each_rate tells which they are.")
      .def(
          "active",
          [](const PyStep& self, const PyRows& rows) {
            return PyRows{self.step->active(wanted("step.active", rows, self.clients)), rows.time};
          },
          nb::arg("rows"), "Their rows [A, P] of rows [C, P], in the same memory.")
      .def(
          "samples",
          [](const PyStep& self, std::int64_t c) { return self.step->samples(client_of(self, c)); },
          nb::arg("c"), "The samples in the batch of client number c of the block.")
      .def(
          "loss_so_far",
          [](const PyStep& self, std::int64_t c) {
            return self.step->loss_so_far(client_of(self, c));
          },
          nb::arg("c"),
          "The sum, over the pass's steps so far, of that client's batch loss times its size: "
          "samples or, of sequences, places that count.")
      .def(
          "each_rate",
          [](const PyStep& self) {
            nb::list runs;
            self.step->each_rate([&](std::int64_t first, std::int64_t count, double rate) {
              runs.append(nb::make_tuple(first, count, rate));
            });
            return runs;
          },
          "A list of (first, count, rate): for the clients first to first + count - 1 train.lr "
          "is multiplied with rate, where steps are taken without an optimizer.")
      .def("gradient", &gradient, nb::arg("at"), nb::arg("mu") = 0.0,
           nb::arg("centre") = nb::none(), nb::arg("gamma") = 0.0, nb::arg("rho") = 1.0,
           nb::arg("draw") = 0, nb::arg("columns") = nb::none(),
           "The gradients [C, P] of the mean losses at rows `at` [C, P]; undefined for clients "
           "without a batch, and in other columns than those asked for. They last until the "
           "step's next verb.")
      .def("gradient_below_head", &gradient_below_head, nb::arg("at"), nb::arg("loss"),
           "The gradients [C, P] of a loss that replaces the head: loss(c, embedding, labels, "
           "gradient) gets what the head would see [B, E] float64 and labels [B], fills gradient "
           "[B, E] and returns the batch's mean loss. The head's columns are undefined. The step "
           "itself can be asked for its embedding alone in there.")
      .def("embedding", &embedding, nb::arg("at"),
           "What the heads of rows `at` [C, P] see of this batch in evaluation, [C, B, E] float64; "
           "undefined for clients without a batch and beyond a client's samples.")
      .def("descend", &descend, nb::arg("rows"), nb::arg("optimizer"), nb::arg("map") = nb::none(),
           nb::arg("mu") = 0.0, nb::arg("centre") = nb::none(), nb::arg("gamma") = 0.0,
           nb::arg("rho") = 1.0, nb::arg("term") = nb::none(),
           "Moves rows [C, P] one step of the optimizer on the batch's gradient, in place. With a "
           "map they are factors [C, Q]. term(c, embedding, gradient) adds to the loss a term of "
           "what the head sees [B, E] float64: it adds that term's gradient to gradient [B, E]. "
           "The optimizer is reset before the first step.")
      .def("step", &take_step, nb::arg("rows"), nb::arg("gradients"), nb::arg("optimizer"),
           "Moves the rows [C, P] of clients with a batch one step on these gradients [C, P], in "
           "place. The optimizer is reset before the first step.")
      .def("minimise", &minimise, nb::arg("rows"), nb::arg("optimizer"), nb::kw_only(),
           nb::arg("steps") = 1, nb::arg("accuracy") = 0.0, nb::arg("mu") = 0.0,
           nb::arg("centre") = nb::none(), nb::arg("gamma") = 0.0, nb::arg("rho") = 1.0,
           "rows [C, P] ~ argmin of the batch's loss and the penalty, from where they are, by up "
           "to `steps` steps of the optimizer, which starts afresh and moves the columns of its "
           "last reset. A client stops at ||gradient||^2 <= accuracy, over these columns; 0: only "
           "after the steps.");
}

}  // namespace

void bind_training(nb::module_& core) {
  bind_codecs(core);
  bind_optimizer(core);
  bind_maps(core);
  bind_step(core);
}

}  // namespace fedhpc::python
