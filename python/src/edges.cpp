// The edge servers of a round.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "rounds.hpp"

namespace fedhpc::python {

namespace {

struct PyEdges {
  RoundSessionPtr session;

  EdgeTier& get() const { return session->get().edges(); }
  /// The edges of this rank.
  std::int64_t count() const { return std::ssize(get().equal_weights()); }
};

struct PyEdgeMean {
  EdgeMean mean;
  RoundSessionPtr session;
  bool reduced = false;

  EdgeMean& get() {
    session->time()->check();
    if (reduced) throw std::runtime_error("the mean has been taken: start a new one");
    return mean;
  }
};

NumpyArray doubles(const std::vector<double>& values) {
  return to_numpy(std::span<const double>(values));
}

void edge_rounds(const PyEdges& self, std::int64_t count, const nb::callable& edge_round) {
  RoundSession& session = *self.session;
  session.require_no_loop("edges.rounds");
  EdgeTier& tier = self.get();
  if (session.in_edge_rounds) {
    throw std::runtime_error("edges.rounds was called from inside of an edge round");
  }
  if (count < 0) refuse("edges.rounds", "a count from 0 on", concat(count));
  const Flagged inside(session.in_edge_rounds);
  tier.rounds(count, [&] {
    edge_round();
    session.require_not_left();
  });
}

void bind_edge_mean(nb::module_& core) {
  nb::class_<PyEdgeMean>(core, "EdgeMean", "A weighted mean of rows within every edge.")
      .def(
          "add",
          [](PyEdgeMean& self, nb::handle edges, nb::handle weights, const PyRows& rows) {
            EdgeMean& mean = self.get();
            const std::int64_t count = rows.get().count();
            const std::vector<std::int64_t> of_rows = to_ids("edge mean's add", edges);
            if (static_cast<std::int64_t>(of_rows.size()) != count) {
              refuse("edge mean's add", concat(count, " edges"), concat(of_rows.size()));
            }
            const Rows values = wanted_models("edge mean's add", rows, count);
            mean.add(of_rows, to_weights("edge mean's add", weights, count), rows.owned(values));
          },
          nb::arg("edges"), nb::arg("weights"), nb::arg("rows"),
          "Adds weights[c] * rows[c] of rows [C, P] to the mean of edges[c], one of this rank's.")
      .def(
          "reduce",
          [](PyEdgeMean& self, const PyEdgeRows* otherwise) {
            EdgeMean& mean = self.get();
            self.session->require_no_loop("edge mean's reduce");
            const EdgeRows other =
                otherwise == nullptr ? EdgeRows{} : wanted_edges("edge mean's reduce", *otherwise);
            self.reduced = true;
            const nb::gil_scoped_release unlocked;
            return PyEdgeRows{otherwise == nullptr ? mean.reduce() : mean.reduce(other)};
          },
          nb::arg("otherwise") = nb::none(),
          "The mean of each of this rank's edges, EdgeRows; where the weights sum to 0 the row "
          "of `otherwise`, or 0. Collective within the edge, once, after the loop over blocks.");
}

}  // namespace

nb::object edges_of(const PyRound& round) {
  round.session->time()->check();
  return nb::cast(PyEdges{round.session});
}

void bind_edges(nb::module_& core) {
  bind_edge_mean(core);
  nb::class_<PyEdges>(core, "EdgeTier",
                      "The edge servers of a round, between its clients and the cloud: "
                      "round.edges. A rank holds the rows of its clients' edges.")
      .def(
          "download",
          [](const PyEdges& self, const PyRows& model, PyEdgeRows& edges, nb::handle codec) {
            std::shared_ptr<const Codec> made;
            const Rows sent = wanted("edges.download", model, 1, edges.edges.rows.layout);
            wanted_edges("edges.download", edges);
            EdgeTier& tier = self.get();
            const Codec* chosen =
                codec.is_none() ? nullptr : &to_codec("edges.download", codec, sent, made);
            const nb::gil_scoped_release unlocked;
            if (chosen == nullptr) {
              tier.download_(sent, edges.edges);
            } else {
              tier.download_(sent, edges.edges, *chosen);
            }
          },
          nb::arg("model"), nb::arg("edges"), nb::arg("codec") = nb::none(),
          "Sends the cloud's model [1, P] to the drawn edges, whose rows of `edges` become it. "
          "Books one payload per drawn edge. codec: as in block.download.")
      .def("rounds", &edge_rounds, nb::arg("count"), nb::arg("edge_round"),
           "Calls edge_round() `count` times; there clients exchange payloads with their edge, "
           "and training sees batches of a pass of its own.")
      .def_prop_ro(
          "round", [](const PyEdges& self) { return self.get().round(); },
          "The number of the edge round in hand, from 0.")
      .def(
          "draw_participants",
          [](const PyEdges& self, std::uint64_t seed) { self.get().draw_participants(seed); },
          nb::arg("seed"), "Draws the participants of this edge round, by their samples.")
      .def(
          "mean",
          [](const PyEdges& self) {
            return std::make_unique<PyEdgeMean>(PyEdgeMean{self.get().mean(), self.session});
          },
          "Starts a weighted mean of models within every edge.")
      .def(
          "training",
          [](const PyEdges& self) {
            return to_numpy(std::span<const std::int64_t>(self.get().training()));
          },
          "The drawn edges of this rank where a participant has training samples: int64.")
      .def(
          "weights_of_participants",
          [](const PyEdges& self, const std::string& weighting) {
            return doubles(self.get().weights_of_participants(to_weighting(weighting)));
          },
          nb::arg("weighting") = "samples",
          "The sum of its participants' weights for each edge of this rank: float64 [E].")
      .def(
          "equal_weights", [](const PyEdges& self) { return doubles(self.get().equal_weights()); },
          "1 for each edge of this rank whose participants weigh anything, else 0: float64 [E].")
      .def(
          "weights_of_clients",
          [](const PyEdges& self, const std::string& weighting) {
            return doubles(self.get().weights_of_clients(to_weighting(weighting)));
          },
          nb::arg("weighting") = "samples",
          "The sum of the weights of all clients of each drawn edge of this rank: float64 [E].")
      .def(
          "upload_mean",
          [](const PyEdges& self, const PyEdgeRows& edges, nb::handle weights, nb::handle codec,
             const PyRows* otherwise) {
            self.session->require_no_loop("edges.upload_mean");
            std::shared_ptr<const Codec> made;
            wanted_edges("edges.upload_mean", edges);
            const Codec& chosen = to_codec("edges.upload_mean", codec, edges.edges.rows, made);
            const std::vector<double> numbers =
                to_weights("edges.upload_mean", weights, edges.edges.count());
            const Rows other = otherwise == nullptr ? Rows{}
                                                    : wanted("edges.upload_mean", *otherwise, 1,
                                                             edges.edges.rows.layout);
            EdgeTier& tier = self.get();
            const nb::gil_scoped_release unlocked;
            return PyRows{tier.upload_mean(edges.edges, numbers, chosen, other)};
          },
          nb::arg("edges"), nb::arg("weights"), nb::arg("codec") = nb::none(),
          nb::arg("otherwise") = nb::none(),
          "Sends the drawn edges' rows to the cloud and returns their weighted mean [1, P]; "
          "where nobody weighs anything `otherwise` [1, P], or 0. Collective.")
      .def(
          "note",
          [](const PyEdges& self, const std::string& metric, nb::handle values) {
            EdgeTier& tier = self.get();
            const std::vector<double> numbers = to_numbers("edges.note", values, self.count());
            self.session->begin_note("edges.note", metric, /*parts=*/true);
            tier.note(metric, numbers);
          },
          nb::arg("metric"), nb::arg("values"),
          "Adds a value of each edge of this rank [E] to a series: the mean over training() of "
          "all ranks.");
}

}  // namespace fedhpc::python
