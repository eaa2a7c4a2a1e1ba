// Rounds and their means.

#include "rounds.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "fedhpc/algorithms/server_fit.hpp"
#include "fedhpc/core/device.hpp"

#include "bindings.hpp"
#include "blocks.hpp"
#include "engine_calls.hpp"

namespace fedhpc::python {

Weighting to_weighting(const std::string& name) {
  if (name == "samples") return Weighting::Samples;
  if (name == "batches") return Weighting::Batches;
  if (name == "uniform") return Weighting::Uniform;
  throw nb::value_error(
      concat("a weighting is samples, batches or uniform, and not '", name, "'").c_str());
}

void RoundSession::require_metric(const std::string& verb, const std::string& metric) const {
  const std::set<std::string>& metrics = method_->metrics;
  if (metrics.contains(metric)) return;
  const std::string near = nearest(metric, {metrics.begin(), metrics.end()});
  throw nb::value_error(concat(verb, ": there is no series '", metric, "'",
                               suggestion(near, "; add it with setup.add_metric in initialise()"))
                            .c_str());
}

void RoundSession::begin_note(const std::string& verb, const std::string& metric, bool parts) {
  require_metric(verb, metric);
  if (!parts && method_->quantiles.contains(metric)) {
    throw nb::value_error(
        concat(verb, ": '", metric, "' has quantiles, which are of values of clients or edges")
            .c_str());
  }
  if (noted_.emplace(metric, parts).first->second == parts) return;
  throw nb::value_error(
      concat(verb, ": '", metric, "' has ", parts ? "a value of the round" : "values of its parts",
             " in this round already; a series takes one value of the round, or those of clients "
             "and edges")
          .c_str());
}

void RoundSession::require_no_loop(const std::string& verb) const {
  if (!loop_ || loop_->blocks.is_over()) return;
  throw std::runtime_error(concat(verb, " came before ", loop_->name,
                                  " had given its last block: it is for after the loop, which "
                                  "goes to its end"));
}

void RoundSession::require_not_left() const {
  if (!loop_ || loop_->blocks.is_over()) return;
  throw std::runtime_error(concat(loop_->name, " was left before its last block"));
}

std::shared_ptr<OpenBlocks> RoundSession::open(bool absent) {
  require_no_loop(absent ? "round.absent_blocks" : "round.blocks");
  return loop_ = std::make_shared<OpenBlocks>(get(), absent);
}

void RoundSession::end() {
  if (loop_) loop_->turn->end();
  loop_.reset();
  round_.time()->end();
}

namespace {

/// Goes through blocks for Python.
struct PyBlocks {
  RoundSessionPtr session;
  std::weak_ptr<OpenBlocks> open;

  PyBlock next() {
    session->time()->check();
    const std::shared_ptr<OpenBlocks> loop = open.lock();
    if (!loop) throw nb::stop_iteration();
    if (session->trains) {
      throw std::runtime_error(
          concat("the next block of ", loop->name, " was asked for from inside of a training"));
    }
    loop->turn->end();
    // Samples of clients may come from other ranks.
    Block* block = without_lock([&] { return loop->blocks.next(); });
    if (block == nullptr) throw nb::stop_iteration();
    loop->turn = time_of("this block is over: a block can be used only in its turn of the loop");
    return {block, loop->turn, session};
  }
};

/// A mean in its round, and the layout of its rows.
template <typename M>
struct InRound {
  M mean;
  RoundSessionPtr session;
  LayoutPtr layout;
  bool reduced = false;

  M& get() {
    session->time()->check();
    if (reduced) throw std::runtime_error("the mean has been taken: start a new one");
    return mean;
  }
  /// For what is collective and done once.
  M& last(const std::string& verb) {
    M& here = get();
    session->require_no_loop(verb);
    reduced = true;
    return here;
  }
};
using PyMean = InRound<Mean>;
using PyColumnMean = InRound<ColumnMean>;

LayoutPtr layout_or_model(nb::handle layout) {
  return layout.is_none() ? nullptr : to_layout(layout);
}

/// Rows of a mean of this layout, null: of models.
Rows added(const std::string& verb, const PyRows& rows, const LayoutPtr& layout,
           std::int64_t count = -1) {
  return layout ? wanted(verb, rows, count, layout) : wanted_models(verb, rows, count);
}

void bind_means(nb::module_& core) {
  nb::class_<PyMean>(core, "Mean", "A weighted mean of rows over all clients of all ranks.")
      .def(
          "add",
          [](PyMean& self, nb::handle weights, const PyRows& rows) {
            Mean& mean = self.get();
            const Rows values = added("mean.add", rows, self.layout);
            mean.add(to_weights("mean.add", weights, values.count()), rows.owned(values));
          },
          nb::arg("weights"), nb::arg("rows"),
          "Adds weights[c] * rows[c] for every client c of rows [C, P], which stay as they are "
          "until reduce().")
      .def(
          "reduce",
          [](PyMean& self, const PyRows* otherwise) {
            const Rows other =
                otherwise == nullptr ? Rows{} : added("mean.reduce", *otherwise, self.layout, 1);
            Mean& mean = self.last("mean.reduce");
            const nb::gil_scoped_release unlocked;
            return PyRows{otherwise == nullptr ? mean.reduce() : mean.reduce(other)};
          },
          nb::arg("otherwise") = nb::none(),
          "The mean over all ranks, [1, P]; where the weights sum to 0 it is `otherwise` [1, P], "
          "or 0. All ranks call it, once, after the loop over blocks.");
  nb::class_<PyColumnMean>(core, "ColumnMean",
                           "A weighted mean of each column over the clients that have sent it.")
      .def(
          "add",
          [](PyColumnMean& self, nb::handle weights, const PyRows& rows, nb::handle sent) {
            ColumnMean& mean = self.get();
            const Rows values = added("column_mean.add", rows, self.layout);
            const Tensor which = to_tensor("column_mean.add", sent);
            const bool truths = which.scalar_type() == at::kBool;
            if (!truths || which.sizes() != values.values.sizes()) {
              refuse("column_mean.add", "an array of bool " + shape_text(values.values),
                     (truths ? "" : "one of numbers ") + shape_text(which));
            }
            mean.add(to_weights("column_mean.add", weights, values.count()), rows.owned(values),
                     which.to(values.values.device()));
          },
          nb::arg("weights"), nb::arg("rows"), nb::arg("sent"),
          "Adds weights[c] * rows[c, i] wherever sent[c, i], an array [C, P] of bool.")
      .def(
          "reduce",
          [](PyColumnMean& self, const PyRows& otherwise) {
            const Rows of_others = added("column_mean.reduce", otherwise, self.layout, 1);
            ColumnMean& mean = self.last("column_mean.reduce");
            const nb::gil_scoped_release unlocked;
            return PyRows{mean.reduce(of_others)};
          },
          nb::arg("otherwise"),
          "The mean over all ranks, [1, P]; a column that nobody has sent is that of "
          "`otherwise` [1, P].");
}

std::vector<Tensor> spread(const PyRound& self, std::int64_t n, const nb::callable& work) {
  self.session->require_no_loop("round.on_server");
  if (n < 0) refuse("round.on_server", "n from 0 on", concat(n));
  Round& round = self.session->get();
  const auto one = [&](std::int64_t i) {
    const nb::gil_scoped_acquire lock;
    return to_tensor("round.on_server", work(i));
  };
  const nb::gil_scoped_release unlocked;
  return round.on_server(n, one);
}

nb::list on_server(const PyRound& self, std::int64_t n, const nb::callable& work) {
  nb::list results;
  for (const Tensor& result : spread(self, n, work)) results.append(to_numpy(result));
  return results;
}

PyBlocks blocks_of(const PyRound& self, bool absent) {
  return {self.session, self.session->open(absent)};
}

void bind_round(nb::module_& core) {
  nb::class_<PyRound>(
      core, "Round",
      "One global round as a method sees it; it is over when round() returns. What is collective "
      "(mean.reduce, noted, coupling, on_server) all ranks call, after the loop over blocks.")
      .def_prop_ro(
          "number", [](const PyRound& self) { return self.session->get().number(); },
          "Its number, from 1; 0 in prepare().")
      .def_prop_ro(
          "cohort",
          [](const PyRound& self) {
            return to_numpy(std::span<const std::int64_t>(self.session->get().cohort().clients));
          },
          "The participants of all ranks, ascending: int64.")
      .def_prop_ro(
          "drawn_edges",
          [](const PyRound& self) {
            return to_numpy(std::span<const std::int64_t>(self.session->get().cohort().edges));
          },
          "The drawn edges of all ranks, ascending: int64.")
      .def_prop_ro(
          "lr_factor", [](const PyRound& self) { return self.session->get().lr_factor(); },
          "The factor on train.lr in this round, from a schedule that counts rounds.")
      .def(
          "blocks", [](const PyRound& self) { return blocks_of(self, false); },
          "This rank's participants, block by block: for block in round.blocks(). The loop goes "
          "to its end; its order and the blocks' width change nothing but speed.")
      .def(
          "absent_blocks", [](const PyRound& self) { return blocks_of(self, true); },
          "This rank's clients that do not take part, in the same way.")
      .def_prop_ro("edges", &edges_of, nb::for_getter(nb::sig("def edges(self) -> EdgeTier")),
                   "The edge servers, for methods that have a tier of them.")
      .def("coupling", &coupling_of, nb::arg("ids"),
           nb::sig("def coupling(self, ids: object) -> Coupling"),
           "Starts algebra between the clients of all ranks; `ids` names those of this rank, in "
           "the order of its rows. Collective.")
      .def(
          "mean",
          [](const PyRound& self, nb::handle layout) {
            LayoutPtr of_rows = layout_or_model(layout);
            Round& round = self.session->get();
            return std::make_unique<PyMean>(
                PyMean{round.mean(of_rows), self.session, std::move(of_rows)});
          },
          nb::arg("layout") = nb::none(),
          "Starts a weighted mean of rows over the round's clients: of models, or of a layout "
          "(or of rows that have it).")
      .def(
          "column_mean",
          [](const PyRound& self, nb::handle layout) {
            LayoutPtr of_rows = layout_or_model(layout);
            Round& round = self.session->get();
            return std::make_unique<PyColumnMean>(
                PyColumnMean{round.column_mean(of_rows), self.session, std::move(of_rows)});
          },
          nb::arg("layout") = nb::none(),
          "Starts a mean of each column over the clients that have sent it.")
      .def(
          "total_weight",
          [](const PyRound& self, const std::string& weighting) {
            return self.session->get().total_weight(to_weighting(weighting));
          },
          nb::arg("weighting") = "samples", "The weights of all participants of all ranks, summed.")
      .def(
          "share_of_clients",
          [](const PyRound& self) { return self.session->get().share_of_clients(); },
          "|S|/N: the participants' share of the clients, both without those that have no training "
          "samples.")
      .def(
          "note",
          [](const PyRound& self, const std::string& metric, double value) {
            self.session->begin_note("round.note", metric, /*parts=*/false);
            self.session->get().note(metric, value);
          },
          nb::arg("metric"), nb::arg("value"),
          "Sets a series of setup.add_metric to a value that is the same on every rank. Such a "
          "series takes no values of clients or edges in this round.")
      .def(
          "noted",
          [](const PyRound& self, const std::string& metric) {
            self.session->require_metric("round.noted", metric);
            self.session->require_no_loop("round.noted");
            Round& round = self.session->get();
            const nb::gil_scoped_release unlocked;
            return round.noted(metric);
          },
          nb::arg("metric"),
          "What the round has noted of it so far: its value, or the mean over clients and edges; "
          "NaN for nothing. Collective.")
      .def("on_server", &on_server, nb::arg("n"), nb::arg("work"),
           "Independent work of the server, spread over the ranks: the arrays work(0) to work(n - "
           "1), of one type, on every rank. Collective.")
      .def(
          "fit_on_server",
          [](const PyRound& self, const PyFactorMap& map, const PyRows& model, const PyRows& start,
             std::int64_t sweeps) {
            self.session->require_no_loop("round.fit_on_server");
            FactorMap& factors = map.of_factors();
            const Rows whole = wanted("round.fit_on_server", model, 1, factors.full());
            const Rows near = wanted("round.fit_on_server", start, 1, factors.factors());
            Round& round = self.session->get();
            const nb::gil_scoped_release unlocked;
            return PyRows{fedhpc::fit_on_server(round, factors, whole, near, sweeps)};
          },
          nb::arg("map"), nb::arg("model"), nb::arg("start"), nb::arg("sweeps"),
          "Factors [1, Q] fitted to model [1, P] near `start` [1, Q], the layers spread over the "
          "ranks. Collective.");
  nb::class_<PyBlocks>(core, "Blocks", "Goes through clients of this rank in blocks.")
      .def("__iter__", [](nb::object self) { return self; })
      .def("__next__", &PyBlocks::next);
}

}  // namespace

void bind_rounds(nb::module_& core) {
  bind_stores(core);
  bind_blocks(core);
  bind_means(core);
  bind_edges(core);
  bind_coupling(core);
  bind_round(core);
}

}  // namespace fedhpc::python
