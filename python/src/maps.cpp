// Maps from factors to models.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include "fedhpc/core/device.hpp"

#include "bindings.hpp"
#include "engine_calls.hpp"
#include "training.hpp"

namespace fedhpc::python {

namespace {

FactorDraw draw_of(std::optional<double> range, bool like_layers, bool zero, std::uint64_t round) {
  return {.range = range, .like_layers = like_layers, .zero = zero, .round = round};
}

std::int64_t layer_of(const FactorMap& map, std::int64_t l) {
  if (l < 0 || l >= map.layers()) throw nb::index_error("no such factorised layer");
  return l;
}

void bind_row_map(nb::module_& core) {
  nb::class_<PyRowMap>(core, "RowMap",
                       "Maps rows of factors [C, Q] to whole models [C, P]. Some columns pass "
                       "through: biases, batch norm, layers left full.")
      .def_prop_ro(
          "full", [](const PyRowMap& self) { return PyLayout{self.get().full()}; },
          "The layout of models, of P columns.")
      .def_prop_ro(
          "factors", [](const PyRowMap& self) { return PyLayout{self.get().factors()}; },
          "The layout of factors, of Q columns.")
      .def(
          "expand",
          [](const PyRowMap& self, const PyRows& u) {
            RowMap& map = self.get();
            const Rows from = wanted("map.expand", u, u.get().count(), map.factors());
            const nb::gil_scoped_release unlocked;
            return PyRows{map.expand(from)};
          },
          nb::arg("u"), "The models [C, P] that factors [C, Q] stand for.")
      .def(
          "expand",
          [](const PyRowMap& self, const PyRows& u, const PyRows& out) {
            RowMap& map = self.get();
            const std::int64_t count = u.get().count();
            const Rows from = wanted("map.expand", u, count, map.factors());
            const Rows to = wanted("map.expand", out, count, map.full());
            const nb::gil_scoped_release unlocked;
            map.expand_(from, to);
          },
          nb::arg("u"), nb::arg("out"), "Writes them into rows `out` [C, P].")
      .def(
          "pullback",
          [](const PyRowMap& self, const PyRows& u, const PyRows& dw, const PyRows& du) {
            RowMap& map = self.get();
            const std::int64_t count = u.get().count();
            const Rows at = wanted("map.pullback", u, count, map.factors());
            const Rows from = wanted("map.pullback", dw, count, map.full());
            const Rows to = wanted("map.pullback", du, count, map.factors());
            const nb::gil_scoped_release unlocked;
            map.pullback_(at, from, to);
          },
          nb::arg("u"), nb::arg("dw"), nb::arg("du"),
          "Writes into du [C, Q] the gradients with respect to u, from those of the weights dw "
          "[C, P].")
      .def(
          "copy_passed",
          [](const PyRowMap& self, const PyRows& from, const PyRows& to,
             const std::string& columns) {
            RowMap& map = self.get();
            const bool up = same_fields(from.get().layout, map.factors());
            const std::int64_t count = from.get().count();
            map.copy_passed_(
                wanted("map.copy_passed", from, count, up ? map.factors() : map.full()),
                wanted("map.copy_passed", to, count, up ? map.full() : map.factors()),
                to_tag(columns));
          },
          nb::arg("source"), nb::arg("target"), nb::arg("columns") = "all",
          "Copies the columns of one kind that pass through, from factors to models or back.");
}

void bind_fits(nb::class_<PyFactorMap, PyRowMap>& bound) {
  bound
      .def(
          "distance_gradient",
          [](const PyFactorMap& self, const PyRows& u, const PyRows& w, double scale,
             const PyRows& du) {
            FactorMap& map = self.of_factors();
            const std::int64_t count = u.get().count();
            const char* verb = "map.distance_gradient";
            const Rows at = wanted(verb, u, count, map.factors());
            const Rows from = wanted(verb, w, count, map.full());
            const Rows to = wanted(verb, du, count, map.factors());
            const nb::gil_scoped_release unlocked;
            map.distance_gradient_(at, from, scale, to);
          },
          nb::arg("u"), nb::arg("w"), nb::arg("scale"), nb::arg("du"),
          "Writes into du [C, Q] the gradients with respect to u of scale/2 ||w - expand(u)||^2, "
          "over all columns but buffers.")
      .def(
          "fit",
          [](const PyFactorMap& self, const PyRows& models, const PyRows& start,
             std::int64_t sweeps) {
            FactorMap& map = self.of_factors();
            const std::int64_t count = models.get().count();
            const Rows of = wanted("map.fit", models, count, map.full());
            const Rows near = wanted("map.fit", start, count, map.factors());
            const nb::gil_scoped_release unlocked;
            return PyRows{map.fit(of, near, sweeps)};
          },
          nb::arg("models"), nb::arg("start"), nb::arg("sweeps"),
          "Factors [C, Q] near those of `start`, fitted to models [C, P].")
      .def(
          "fit_layer",
          [](const PyFactorMap& self, std::int64_t l, const PyRows& model, const PyRows& start,
             std::int64_t sweeps) {
            FactorMap& map = self.of_factors();
            const std::int64_t layer = layer_of(map, l);
            const Rows of = wanted("map.fit_layer", model, 1, map.full());
            const Rows near = wanted("map.fit_layer", start, 1, map.factors());
            return to_numpy(
                without_lock([&] { return on_host(map.fit_layer(layer, of, near, sweeps)); }));
          },
          nb::arg("layer"), nb::arg("model"), nb::arg("start"), nb::arg("sweeps"),
          "The factors [q] of one factorised layer, near those of `start` [1, Q], fitted to "
          "`model` [1, P]: for round.on_server.")
      .def(
          "assemble",
          [](const PyFactorMap& self, const nb::list& factors, const PyRows& model) {
            FactorMap& map = self.of_factors();
            const Rows whole = wanted("map.assemble", model, 1, map.full());
            if (static_cast<std::int64_t>(factors.size()) != map.layers()) {
              refuse("map.assemble", concat(map.layers(), " layers"), concat(factors.size()));
            }
            std::vector<Tensor> layers;
            for (nb::handle layer : factors) {
              layers.push_back(to_tensor("map.assemble", layer).to(whole.values.options()));
            }
            return PyRows{map.assemble(layers, whole)};
          },
          nb::arg("factors"), nb::arg("model"),
          "Joins one array [q] per factorised layer into factors [1, Q]; what passes through "
          "comes from `model` [1, P].")
      .def(
          "matrix_of_layer",
          [](const PyFactorMap& self, std::int64_t l, const PyRows& model) {
            FactorMap& map = self.of_factors();
            return to_numpy(
                on_host(map.matrix_of_layer(layer_of(map, l),
                                            wanted("map.matrix_of_layer", model, 1, map.full())))
                    .clone());
          },
          nb::arg("layer"), nb::arg("model"),
          "A copy of the layer's weights in `model` [1, P] as the matrix that is factorised.")
      .def(
          "squared_length",
          [](const PyFactorMap& self, const PyRows& model) {
            FactorMap& map = self.of_factors();
            return map.squared_length(wanted("map.squared_length", model, 1, map.full()));
          },
          nb::arg("model"), "||w||^2 of the factorised weights of `model` [1, P], in float64.");
}

void bind_draws(nb::class_<PyFactorMap, PyRowMap>& bound) {
  bound
      .def(
          "initial",
          [](const PyFactorMap& self, const PyRows& model, std::uint64_t seed,
             std::optional<double> range, bool like_layers, bool zero, std::uint64_t round) {
            FactorMap& map = self.of_factors();
            return PyRows{map.initial(wanted("map.initial", model, 1, map.full()), seed,
                                      draw_of(range, like_layers, zero, round))};
          },
          nb::arg("model"), nb::arg("seed"), nb::kw_only(), nb::arg("range") = nb::none(),
          nb::arg("like_layers") = false, nb::arg("zero") = false, nb::arg("round") = 0,
          "Draws factors [1, Q]: uniform in (-range, range), or normal; `zero`: those that make "
          "the weights 0 are 0; `round`: the rounds done before. What passes through comes from "
          "`model` [1, P].")
      .def(
          "draw_constants",
          [](const PyFactorMap& self, std::uint64_t seed, double range, std::uint64_t round,
             const PyRows& like) {
            self.of_factors().draw_constants(seed, draw_of(range, false, false, round),
                                             like.get().values.options());
          },
          nb::arg("seed"), nb::arg("range"), nb::arg("round"), nb::arg("like"),
          "Draws the constants of every layer, uniform in (-range, range), of the type of rows "
          "`like`.")
      .def(
          "set_constants_to_identity",
          [](const PyFactorMap& self, const PyRows& like) {
            self.of_factors().set_constants_to_identity(like.get().values.options());
          },
          nb::arg("like"), "Makes the constants identity matrices of the type of rows `like`.")
      .def(
          "drawn",
          [](const PyFactorMap& self, const PyRows& factors) {
            nb::dict drawn;
            for (const NamedTensor& one :
                 self.of_factors().drawn(wanted("map.drawn", factors, 1, self.get().factors()))) {
              drawn[one.name.c_str()] = to_numpy(on_host(one.values).clone());
            }
            return drawn;
          },
          nb::arg("factors"), "What has been drawn, by LAYER.NAME, from factors [1, Q].");
}

}  // namespace

void bind_maps(nb::module_& core) {
  bind_row_map(core);
  nb::class_<PyFactorMap, PyRowMap> bound(
      core, "FactorMap", "The map of a method that names factorisations; setup.factor_map().");
  bound
      .def_prop_ro(
          "layers", [](const PyFactorMap& self) { return self.of_factors().layers(); },
          "The number of factorised layers.")
      .def(
          "layer_name",
          [](const PyFactorMap& self, std::int64_t l) {
            return self.of_factors().layer_name(layer_of(self.of_factors(), l));
          },
          nb::arg("layer"), "The layer's name, e.g. 'conv2'.")
      .def(
          "factor_fields",
          [](const PyFactorMap& self) { return self.of_factors().factor_fields(); },
          "The fields of the layout of factors that are factors, in order.")
      .def_prop_ro(
          "weight_count", [](const PyFactorMap& self) { return self.of_factors().weight_count(); },
          "The number of weights of all factorised layers.")
      .def_prop_ro(
          "factor_count", [](const PyFactorMap& self) { return self.of_factors().factor_count(); },
          "The number of factors of all factorised layers.");
  bind_fits(bound);
  bind_draws(bound);
  nb::class_<PyUpdateMap, PyRowMap>(
      core, "UpdateMap",
      "Maps updates of frozen models: w = W + expand(u) on the factorised columns.")
      .def(
          "__init__",
          [](PyUpdateMap* self, const PyFactorMap& updates, const PyRows& like) {
            auto map =
                std::make_shared<UpdateMap>(updates.of_factors(), like.get().values.options());
            new (self) PyUpdateMap{{map.get(), updates.time}, map};
          },
          nb::arg("updates"), nb::arg("like"), "W is 0 at first, of the type of rows `like`.")
      .def_prop_ro(
          "frozen",
          [](const PyUpdateMap& self) {
            self.time->check();
            return PyRows{self.owned->frozen()};
          },
          "W on the factorised columns, rows [1, P] in the same memory. In visit_state: "
          "self.map.frozen.assign(state.rows('frozen', self.map.frozen)).")
      .def(
          "merge",
          [](const PyUpdateMap& self, const PyRows& u) {
            self.time->check();
            const Rows merged = wanted("map.merge", u, 1, self.owned->factors());
            const nb::gil_scoped_release unlocked;
            self.owned->merge_(merged);
          },
          nb::arg("u"), "W += expand(u), u [1, Q].");
}

}  // namespace fedhpc::python
