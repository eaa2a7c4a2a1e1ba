#include "fedhpc/engine/recorder.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"

namespace fedhpc {

namespace {

// Label counts of all clients at once are more than a rank of a million clients should hold.
constexpr std::int64_t kHistogramPart = 16384;  // clients

/// Bytes that all rounds of a result file have booked on all links; clients that have moved between
/// ranks are no traffic of theirs.
double booked_bytes(const h5::Handle& file) {
  double bytes = 0;
  for (const Metric& metric : metric_table()) {
    if (!metric.name.starts_with("bytes_") || metric.name == "bytes_moved") continue;
    for (const double booked : h5::read_vector<double>(file, "/rounds/" + metric.name)) {
      if (!std::isnan(booked)) bytes += booked;
    }
  }
  return bytes;
}

}  // namespace

void naming_file(const std::string& path, const std::string& results,
                 const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(concat("'", path, "' cannot be written: ", error.what(), "; mend that, then ",
                       way_on(results)));
  }
}

Recorder::Recorder(Experiment& experiment, Communicator& comm, const std::string& command_line,
                   const Resumption* from, Earlier earlier)
    : experiment_(experiment), hosts_(comm.all_texts(host_name())) {
  const auto on_writer = [&](const std::function<void()>& work) {
    fail_together(comm, [&] {
      if (comm.rank() != 0) return;
      try {
        work();
      } catch (const Error& error) {
        throw ConfigError(concat("run.output '", experiment.config().run.output,
                                 "' cannot be written: ", error.what(), "; give another path"));
      }
    });
  };
  on_writer([&] { create(command_line, from, [&] { comm.progress(); }); });
  const std::int64_t clients = from == nullptr ? experiment.partition().clients() : 0;
  for (std::int64_t first = 0; first < clients; first += kHistogramPart) {
    const Tensor counts =
        experiment.parts().label_histogram(first, std::min(kHistogramPart, clients - first));
    on_writer([&] { writer_->write_label_histogram(first, counts); });
  }
  const StateBytes state = state_bytes(experiment, comm);
  on_writer([&] { h5::flush_file(writer_->file()); });
  fail_together(comm, [&] {
    if (comm.rank() == 0) check_room(state, from, earlier);
  });
  on_writer([&] { start(from, earlier); });
}

void Recorder::check_room(const StateBytes& state, const Resumption* from, Earlier earlier) {
  const Config& config = experiment_.config();
  const std::string results = link_target(config.run.output);
  const std::int64_t left = config.run.rounds - (from == nullptr ? 0 : from->round);
  const RoomNeeded needed = room_needed(experiment_, left, h5::bytes_of(writer_->file()), state);
  // An earlier file makes room when this one takes its place.
  const std::int64_t given = earlier == Earlier::Replace ? bytes_of_file(results) : 0;
  run_log().of_run(LogLevel::Warning,
                   fedhpc::check_room(config, needed, free_bytes(folder_of(results)) + given));
}

void Recorder::start(const Resumption* from, Earlier earlier) {
  const std::string results = link_target(experiment_.config().run.output);
  if (earlier != Earlier::Replace) {
    earlier_result_ = set_aside(results, from == nullptr ? -1 : from->round);
  }
  writer_->start();
  if (from == nullptr) remove_checkpoints(results, {});
}

void Recorder::create(const std::string& command_line, const Resumption* from, const Tick& tick) {
  const RunOptions& run = experiment_.config().run;
  const RunHeader about = header(command_line);
  if (from != nullptr) {
    // Models are those of the round that ends the run: one that is killed or fails has none.
    std::vector<std::string> to_come;
    if (from->round < run.rounds) to_come = {"/model/global", "/model/factors", "/model/personal"};
    writer_ = std::make_unique<ResultsWriter>(run.output, run.live, about, experiment_.series(),
                                              h5::open_whole(from->checkpoint, tick), to_come);
    bytes_before_ = booked_bytes(writer_->file());
  } else {
    writer_ = std::make_unique<ResultsWriter>(run.output, run.live, about, experiment_.series(),
                                              clients());
    for (const auto& [group, parameters] : experiment_.initial().parts()) {
      if (!run.saves("init")) break;
      write_parameters(writer_->file(), "/model/init/" + group, parameters);
    }
    const std::vector<NamedTensor> graph = experiment_.parts().method().drawn_in(0);
    if (!graph.empty()) write_parameters(writer_->file(), "/graph", graph);
    write_names();
    if (run.saves("partition")) {
      write_partition(h5::create_group(writer_->file(), "/partition"), experiment_.partition());
    }
  }
  if (run.saves("draws")) {
    writer_->declare_cohorts(experiment_.parts().participants_limit());
    writer_->declare_draws(experiment_.parts().method().drawn_in(1));
  }
  for (const auto& [group, parameters] : experiment_.first_record().parts()) {
    writer_->declare_model(group, parameters);
  }
  if (run.saves("personal")) {
    writer_->declare_personal(experiment_.partition().clients(),
                              parameters_of(experiment_.initial().global));
  }
}

RunHeader Recorder::header(const std::string& command_line) const {
  return {.config = experiment_.config().to_ini(),
          .command_line = command_line,
          .seed = experiment_.config().run.seed,
          .ranks = static_cast<std::int64_t>(hosts_.size()),
          .processor = experiment_.parts().processors,
          .device = experiment_.config().run.device == DeviceKind::Cuda ? "cuda" : "cpu",
          .block = experiment_.parts().block_width,
          .digests = experiment_.parts().digests,
          .hostnames = hosts_};
}

ClientTable Recorder::clients() const {
  ClientTable table;
  table.edge = experiment_.parts().placement().edge_of_client();
  const Partition& partition = experiment_.partition();
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    table.train_samples.push_back(partition.train.count(client));
    table.test_samples.push_back(partition.test.count(client));
    if (partition.validation.size() == 0) continue;
    table.validation_samples.push_back(partition.validation.count(client));
  }
  table.classes = experiment_.parts().dataset->classes();
  table.measure = measure_of(experiment_.parts().loss);
  return table;
}

void Recorder::write_names() {
  const Dataset& data = *experiment_.parts().dataset;
  const auto write = [&](const std::string& path, const std::vector<std::string>& names,
                         const std::string& meaning) {
    if (names.empty()) return;
    h5::write_texts(writer_->file(), path, names);
    h5::write_attribute(h5::open_dataset(writer_->file(), path), "meaning", meaning);
  };
  write("/names/classes", data.class_names(), "what the data's files call label 0, 1, ...");
  const DataOptions& options = experiment_.config().data;
  std::error_code failed;  // a file of samples may hold the partition of its own clients
  const bool own = options.partition == "natural" ||
                   (options.partition == "file" &&
                    std::filesystem::equivalent(options.partition_file, options.file, failed));
  if (!own) return;
  write("/names/clients", data.client_names(), "what the data's files call client 0, 1, ...");
}

void Recorder::write_personal_models() {
  if (!experiment_.config().run.saves("personal")) return;
  const std::string& output = experiment_.config().run.output;
  experiment_.gather_personal_models(
      [&](std::span<const std::int64_t> clients, const Rows& models) {
        naming_file(output, output, [&] {
          for (std::size_t c = 0; c < clients.size(); ++c) {
            const Tensor row = models.values.narrow(0, static_cast<std::int64_t>(c), 1);
            writer_->write_personal(clients[c], parameters_of({row, models.layout}));
          }
        });
      });
  if (writer_) naming_file(output, output, [&] { writer_->models_written(); });
}

void Recorder::record(const RoundReport& report) {
  const RunOptions& options = experiment_.config().run;
  if (report.round == options.rounds) write_personal_models();
  if (!writer_) return;
  RoundMetrics metrics = report.metrics;
  metrics.seconds_io = io_watch_.lap();
  const Timed timed(io_watch_);
  const RunOptions& run = experiment_.config().run;
  naming_file(run.output, run.output, [&] {
    if (run.saves("draws")) {
      writer_->append_cohort(*report.cohort);
      const std::vector<NamedTensor> draws = experiment_.parts().method().drawn_in(report.round);
      if (!draws.empty()) writer_->append_draws(draws);
    }
    if (report.evaluated) {
      writer_->append_client_scores(report.round, report.personal->now(), report.personal->best());
    }
    if (report.round == run.rounds) write_parts(experiment_.last_evaluated());
    writer_->append_round(report.round, metrics.values(experiment_.parts().loss));
  });
}

void Recorder::write_parts(const ModelRecord& model) {
  for (const auto& [group, parameters] : model.parts()) writer_->write_model(group, parameters);
}

void Recorder::write_models(const ModelRecord& model, bool personal) {
  if (personal) write_personal_models();
  if (!writer_) return;
  const std::string& output = experiment_.config().run.output;
  naming_file(output, output, [&] { write_parts(model); });
}

void Recorder::finish(const std::string& status) {
  if (!writer_) return;
  const std::string& output = experiment_.config().run.output;
  naming_file(output, output, [&] { writer_->finish(status); });
}

void Recorder::fail() noexcept {
  try {
    if (writer_) writer_->finish("failed");
  } catch (const std::exception&) {
    // The failure that led here is what the user reads.
  }
}

}  // namespace fedhpc
