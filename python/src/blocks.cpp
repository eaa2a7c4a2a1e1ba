// Blocks of a round.

#include "blocks.hpp"

#include <algorithm>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include "bindings.hpp"
#include "engine_calls.hpp"

namespace fedhpc::python {

namespace {

/// Training in hand, without the interpreter's lock.
class Training {
 public:
  Training(const std::string& verb, RoundSession& session) {
    if (session.trains) {
      throw std::runtime_error(concat(verb, " was called from inside of a training of this block"));
    }
    trains_.emplace(session.trains);
    unlocked_.emplace();
  }

 private:
  std::optional<Flagged> trains_;
  std::optional<nb::gil_scoped_release> unlocked_;  // ends first
};

/// Rows that travel, of any layout: with all buffers of the model, or none.
Rows wanted_travelling(const std::string& verb, const PyRows& rows, std::int64_t count,
                       bool or_one = false) {
  Rows sent = wanted(verb, rows, {.count = count, .or_one = or_one});
  const RunRows& run = the_run();
  const std::int64_t buffers = sent.layout->count(Tag::Buffer);
  if (run.own_buffers && buffers != 0 && buffers != run.model->count(Tag::Buffer)) {
    refuse(verb, "rows with all of the model's batch-norm statistics, or none",
           concat(buffers, " of them"));
  }
  return sent;
}

PyRows download(PyBlock& self, const PyRows& models, nb::handle codec, std::int64_t beside,
                std::int64_t channel) {
  Block& block = self.get();
  std::shared_ptr<const Codec> made;
  const Rows sent = wanted_travelling("block.download", models, block.count(), /*or_one=*/true);
  if (beside < 0) refuse("block.download", "bytes beside from 0 on", concat(beside));
  if (channel < 0) refuse("block.download", "a channel from 0 on", concat(channel));
  if (!codec.is_none() && channel != 0) {
    throw nb::value_error(
        "block.download takes a codec, or the channel of links that have one, and not both");
  }
  const Rows from = models.owned(sent);
  const Codec* chosen = codec.is_none() ? nullptr : &to_codec("block.download", codec, sent, made);
  const nb::gil_scoped_release unlocked;
  const Rows received = chosen == nullptr ? block.download(from, channel, beside)
                                          : block.download(from, *chosen, beside);
  // Clients train in place what they received, and the server's rows stay.
  return {received.values.is_alias_of(sent.values) ? received.clone() : received};
}

PyRows download_of_edges(PyBlock& self, const PyEdgeRows& models, nb::handle codec) {
  std::shared_ptr<const Codec> made;
  const EdgeRows sent = wanted_edges("block.download", models);
  Block& block = self.get();
  const Codec* chosen =
      codec.is_none() ? nullptr : &to_codec("block.download", codec, sent.rows, made);
  const nb::gil_scoped_release unlocked;
  return {chosen == nullptr ? block.download(sent) : block.download(sent, *chosen)};
}

/// Passes are numbers of a draw's key.
void require_pass(const std::string& verb, std::optional<std::int64_t> pass) {
  if (!pass || (*pass >= 0 && *pass < LocalStep::kPassesPerDraw)) return;
  refuse(verb, concat("a pass from 0 to ", LocalStep::kPassesPerDraw - 1), concat(*pass));
}

PyRows train(PyBlock& self, const PyRows& start, double mu, const PyRows* centre, double gamma,
             double rho, std::optional<std::int64_t> pass, nb::handle columns, const PyRowMap* map,
             bool goes_on) {
  Block& block = self.get();
  require_pass("block.train", pass);
  LocalWork work{.pass = pass, .columns = to_columns(columns), .goes_on = goes_on};
  if (map != nullptr) work.map = &map->get();
  const Rows from = map == nullptr
                        ? wanted_models("block.train", start, block.count())
                        : wanted("block.train", start, block.count(), map->get().factors());
  if (map != nullptr) wanted_full("block.train", *map);
  work.penalty = penalty_of("block.train", mu, centre, gamma, rho, block.count(), from.layout);
  if (work.penalty.any() && (map != nullptr || !work.columns.all())) {
    throw nb::value_error("block.train takes a penalty only where whole models move");
  }
  const Training training("block.train", *self.session);
  return {block.train(from, work)};
}

/// A function that hands local steps to Python's.
std::function<void(LocalStep&)> steps_for(const nb::callable& take, std::int64_t clients) {
  return [&take, clients](LocalStep& step) {
    const nb::gil_scoped_acquire lock;
    const TimePtr time =
        time_of("this step is over: a step can be used only in the function given to each_step");
    const During during(time);
    const nb::object handed = nb::cast(PyStep{{step, time}, clients});
    const auto end_gradients = [&] { nb::cast<PyStep&>(handed).gradients->end(); };
    try {
      take(handed);
    } catch (...) {
      end_gradients();
      throw;
    }
    end_gradients();
  };
}

void each_step(PyBlock& self, const nb::callable& take, bool alike,
               std::optional<std::int64_t> pass) {
  Block& block = self.get();
  require_pass("block.each_step", pass);
  const auto each = steps_for(take, block.count());
  const Training training("block.each_step", *self.session);
  block.each_step(alike ? Steps::Alike : Steps::Any, each, pass);
}

void each_batch(PyBlock& self, double share, std::int64_t pass, const nb::callable& take,
                const std::string& sampled) {
  Block& block = self.get();
  require_pass("block.each_batch", pass);
  if (!(share > 0 && share <= 1)) {
    refuse("block.each_batch", "a share above 0 and at most 1", concat(share));
  }
  if (sampled != "drawn" && sampled != "slice") {
    refuse("block.each_batch", "sampled drawn or slice", "'" + sampled + "'");
  }
  const auto each = steps_for(take, block.count());
  const Training training("block.each_batch", *self.session);
  block.each_batch(share, pass, each, sampled == "drawn" ? Sampled::Drawn : Sampled::Slice);
}

PyBlock only(PyBlock& self, nb::handle clients) {
  Block& block = self.get();
  const std::vector<std::int64_t> ids = to_ids("block.only", clients);
  auto next = block.clients().begin();
  for (const std::int64_t client : ids) {
    next = std::find(next, block.clients().end(), client);
    if (next == block.clients().end()) {
      refuse("block.only", "some of the block's clients in its order", concat(client));
    }
    ++next;
  }
  auto owned = std::make_shared<PyBlock::Some>(ids, block);
  return {&owned->block, self.time, self.session, owned};
}

PyRows upload(PyBlock& self, const PyRows& rows, nb::handle codec) {
  std::shared_ptr<const Codec> made;
  Block& block = self.get();
  const Rows sent = wanted("block.upload", rows, block.count());
  const Codec& chosen = to_codec("block.upload", codec, sent, made);
  const Rows from = rows.owned(sent);
  const nb::gil_scoped_release unlocked;
  return {block.upload(from, chosen)};
}

PyRows upload_models(PyBlock& self, const PyRows& models, nb::handle codec) {
  std::shared_ptr<const Codec> made;
  Block& block = self.get();
  const Rows sent = wanted_travelling("block.upload_models", models, block.count());
  const Codec& chosen = to_codec("block.upload_models", codec, sent, made);
  const Rows from = models.owned(sent);
  const nb::gil_scoped_release unlocked;
  return {block.upload_models(from, chosen)};
}

NumpyArray send(PyBlock& self, const std::string& direction, const RandomColumns& columns) {
  if (direction != "up" && direction != "down") {
    refuse("block.send", "up or down", "'" + direction + "'");
  }
  Block& block = self.get();
  const Direction way = direction == "up" ? Direction::Up : Direction::Down;
  return to_numpy(without_lock([&] { return block.send(way, columns); }));
}

void require_client(const char* verb, const Block& block, std::int64_t client) {
  if (std::ranges::find(block.clients(), client) == block.clients().end()) {
    refuse(verb, "a client of the block", concat(client));
  }
}

NumpyArray evaluate(PyBlock& self, const PyRows& models) {
  Block& block = self.get();
  const Rows from = models.owned(wanted_models("block.evaluate", models, block.count()));
  const std::vector<double> accuracies = without_lock([&] { return block.evaluate(from); });
  return to_numpy(std::span<const double>(accuracies));
}

nb::tuple embed(PyBlock& self, const PyRows& model, std::int64_t client) {
  Block& block = self.get();
  require_client("block.embed", block, client);
  const Rows from = model.owned(wanted_models("block.embed", model, 1));
  const Embedded embedded = without_lock([&] { return block.embed(from, client); });
  return nb::make_tuple(to_numpy(embedded.values), to_numpy(embedded.labels));
}

void bind_travel(nb::class_<PyBlock>& bound) {
  bound
      .def("download", &download, nb::arg("models"), nb::arg("codec") = nb::none(),
           nb::arg("beside") = 0, nb::arg("channel") = 0,
           "Sends a model to every client and returns what they receive, [C, P]. All get rows "
           "[1, P], or client c gets row c of [C, P]. Books one payload per client: the model and "
           "`beside` more bytes. `codec`: a name, a Codec, or None: as algorithm.downlink_codec "
           "says of this channel of setup.open_links(), and dense without.")
      .def("download", &download_of_edges, nb::arg("models"), nb::arg("codec") = nb::none(),
           "Every client gets the model of its edge.")
      .def(
          "upload", &upload, nb::arg("rows"), nb::arg("codec") = nb::none(),
          "Sends every client's row of [C, P] and returns what the server (in edge rounds the "
          "edge) receives, [C, P], which may be the same memory. Books one payload per client. For "
          "changes of models.")
      .def("upload_models", &upload_models, nb::arg("models"), nb::arg("codec") = nb::none(),
           "The same for whole models [C, P]: where batch norm's statistics stay with clients, "
           "the server has those of the initial model.")
      .def("send", &send, nb::arg("direction"), nb::arg("columns"),
           "Draws the columns that travel 'up' or 'down' for each client, an array [C, P] of "
           "bool, and books one payload of them per client.");
}

void bind_training_of_blocks(nb::class_<PyBlock>& bound) {
  bound
      .def("train", &train, nb::arg("start"), nb::kw_only(), nb::arg("mu") = 0.0,
           nb::arg("centre") = nb::none(), nb::arg("gamma") = 0.0, nb::arg("rho") = 1.0,
           nb::arg("pass_") = nb::none(), nb::arg("columns") = nb::none(),
           nb::arg("map") = nb::none(), nb::arg("goes_on") = false,
           "Trains every client locally, as train.* say, from its row of `start` [C, P] and "
           "returns the trained rows [C, P]. Adds mu/2 ||w - centre||^2 + gamma rho sum log "
           "cosh(w / rho) to the loss. pass_: equal passes of a round see equal batches. columns: "
           "those that move ('head', 'body'). map: rows are factors [C, Q]. goes_on: the "
           "optimizer goes on from the last training, which was the block's in this round. Counts "
           "into train_loss.")
      .def("each_step", &each_step, nb::arg("take"), nb::kw_only(), nb::arg("alike") = false,
           nb::arg("pass_") = nb::none(),
           "Runs local training step by step: take(step) makes each, a LocalStep. alike: steps "
           "move rows in place and do the same work each time, so that a GPU repeats them. Counts "
           "into train_loss.")
      .def("each_batch", &each_batch, nb::arg("share"), nb::arg("pass_"), nb::arg("take"),
           nb::arg("sampled") = "drawn",
           "Goes once through this share of every client's training samples, 'drawn' or "
           "'slice'; take(step) has a batch each. Counts into simulated time, not into "
           "train_loss.")
      .def("evaluate", &evaluate, nb::arg("models"),
           "The accuracy of row c of models [C, P] on the test samples of clients[c]: float64 "
           "[C]. NaN without samples and in rounds without evaluation.")
      .def(
          "samples_of",
          [](PyBlock& self, std::int64_t client) {
            require_client("block.samples_of", self.get(), client);
            return to_numpy(self.get().samples_of(client));
          },
          nb::arg("client"), "The features of its training samples: float64 [n, D].")
      .def("embed", &embed, nb::arg("model"), nb::arg("client"),
           "What the head of model [1, P] sees of the client's training samples: (float64 [n, E], "
           "labels int64 [n]).");
}

}  // namespace

void bind_blocks(nb::module_& core) {
  nb::class_<PyBlock> bound(
      core, "Block",
      "C participants of a round on this rank, trained together: each client has one row. A block "
      "can be used only in its turn of the loop; the rows it gave stay valid.");
  bound
      .def_prop_ro(
          "clients", [](PyBlock& self) { return to_numpy(self.get().clients()); },
          "The clients' ids: int64 [C].")
      .def("__len__", [](PyBlock& self) { return self.get().count(); })
      .def_prop_ro(
          "edges", [](PyBlock& self) { return to_numpy(self.get().edges()); },
          "The edge of each client: int64 [C].")
      .def_prop_ro(
          "round", [](PyBlock& self) { return self.get().round(); }, "The round's number, from 1.")
      .def(
          "trains",
          [](PyBlock& self, std::int64_t client) {
            require_client("block.trains", self.get(), client);
            return self.get().trains(client);
          },
          nb::arg("client"), "Whether the client's local training has a step.")
      .def_prop_ro(
          "local_steps", [](PyBlock& self) { return to_numpy(self.get().local_steps()); },
          "The local steps of each client in this round, by train.*: int64 [C].")
      .def(
          "weights",
          [](PyBlock& self, const std::string& weighting) {
            return to_numpy(self.get().weights(to_weighting(weighting)));
          },
          nb::arg("weighting") = "samples",
          "The weight of each client, float64 [C]: its training 'samples', the 'batches' of an "
          "epoch, or 'uniform', which is 1 (0 without training samples).")
      .def("only", &only, nb::arg("clients"),
           "A block of some of the clients, whose ids keep their order.")
      .def(
          "keep",
          [](PyBlock& self, const PyStoredRows& store, const PyRows& rows) {
            Block& block = self.get();
            block.keep(store.get(),
                       wanted("block.keep", rows, block.count(), store.get().layout()));
          },
          nb::arg("store"), nb::arg("rows"),
          "Stores row c of rows [C, P] for clients[c]; who has no local step keeps its old row.")
      .def(
          "keep_buffers",
          [](PyBlock& self, const PyRows& rows) {
            Block& block = self.get();
            const LayoutPtr& factors = the_run().factors;
            const bool of_factors = factors && same_fields(rows.get().layout, factors);
            block.keep_buffers(of_factors
                                   ? wanted("block.keep_buffers", rows, block.count(), factors)
                                   : wanted_models("block.keep_buffers", rows, block.count()));
          },
          nb::arg("rows"),
          "Stores batch norm's statistics in rows [C, P] as the clients' own where train.buffers "
          "is local; elsewhere does nothing. For what a client makes of a model it received.")
      .def(
          "note",
          [](PyBlock& self, const std::string& metric, nb::handle values) {
            Block& block = self.get();
            const std::vector<double> numbers = to_numbers("block.note", values, block.count());
            self.session->begin_note("block.note", metric, /*parts=*/true);
            block.note(metric, numbers);
          },
          nb::arg("metric"), nb::arg("values"),
          "Adds a value of each client [C] to a series of setup.add_metric: the mean over "
          "clients that have trained and whose value is not NaN.")
      .def(
          "note_received",
          [](PyBlock& self, const std::string& metric, nb::handle values) {
            Block& block = self.get();
            const std::vector<double> numbers =
                to_numbers("block.note_received", values, block.count());
            self.session->begin_note("block.note_received", metric, /*parts=*/true);
            block.note_received(metric, numbers);
          },
          nb::arg("metric"), nb::arg("values"),
          "As note, of what clients receive: those that have not trained count as well.");
  bind_travel(bound);
  bind_training_of_blocks(bound);
}

}  // namespace fedhpc::python
