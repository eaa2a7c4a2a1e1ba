#include "fedhpc/engine/recorder.hpp"

#include <algorithm>
#include <filesystem>
#include <unistd.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/io/durable.hpp"

namespace fedhpc {

namespace {

// Label counts of all clients at once are more than a rank of a million clients should hold.
constexpr std::int64_t kHistogramPart = 16384;  // clients

std::vector<Series> series_of(const Experiment& experiment) {
  std::vector<Series> series;
  for (const MetricInfo& metric : metric_table()) {
    series.push_back({metric.name, metric.unit, metric.meaning});
  }
  for (const RoundMetric& metric : experiment.own_metrics()) {
    series.push_back({metric.name, metric.unit, metric.meaning});
  }
  return series;
}

}  // namespace

void naming_file(const std::string& path, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(concat("'", path, "' cannot be written: ", error.what()));
  }
}

void check_output(const Config& config, const std::string& configuration) {
  namespace fs = std::filesystem;
  const std::string output = link_target(config.run.output);
  const std::string place = config.options().origin("run.output").level == Level::Default
                                ? "configuration"
                                : config.options().origin("run.output").place;
  const auto refuse = [&](const std::string& reason) {
    throw ConfigError(concat(place, ": key 'run.output' cannot be '", output, "': ", reason));
  };
  std::error_code ignored;
  const std::string folder = folder_of(output);
  if (!fs::is_directory(folder, ignored)) {
    refuse(concat("the folder '", folder, "' does not exist; create it first"));
  }
  if (fs::is_directory(output, ignored)) refuse("it is a folder; give the path of a file");
  const bool present = fs::exists(output, ignored);
  if (present && !fs::is_regular_file(output, ignored)) {
    refuse("it is not a file; give the path of one");
  }
  // The file grows under another name and then takes its place, and checkpoints lie beside it.
  if (access(folder.c_str(), W_OK) != 0 || (present && access(output.c_str(), W_OK) != 0)) {
    refuse("no permission to write there");
  }
  if (present && is_locked(output)) {
    refuse("another run is writing it or another program has it open; give another name");
  }
  for (const std::string& input :
       {configuration, config.model.init_file, config.data.partition_file}) {
    if (!input.empty() && present && fs::equivalent(input, output, ignored)) {
      refuse("this run reads that file; give another name");
    }
  }
}

Recorder::Recorder(const Experiment& experiment, Communicator& comm,
                   const std::string& command_line, const Resumption* from)
    : experiment_(experiment) {
  const std::vector<std::string> hosts = comm.all_texts(host_name());
  const auto on_writer = [&](const std::function<void()>& work) {
    together(comm, [&] {
      if (comm.rank() != 0) return;
      try {
        work();
      } catch (const Error& error) {
        throw ConfigError(concat("run.output '", experiment.config().run.output,
                                 "' cannot be written: ", error.what(), "; give another path"));
      }
    });
  };
  on_writer([&] { create(command_line, hosts, from); });
  const std::int64_t clients = from == nullptr ? experiment.partition().clients() : 0;
  for (std::int64_t first = 0; first < clients; first += kHistogramPart) {
    const Tensor counts =
        experiment.label_histogram(first, std::min(kHistogramPart, clients - first));
    on_writer([&] { writer_->write_label_histogram(first, counts); });
  }
  on_writer([&] { writer_->start(); });
}

void Recorder::create(const std::string& command_line, const std::vector<std::string>& hosts,
                      const Resumption* from) {
  const RunOptions& run = experiment_.config().run;
  const RunHeader about = header(command_line, hosts);
  if (from != nullptr) {
    writer_ = std::make_unique<ResultsWriter>(run.output, run.live, about, series_of(experiment_),
                                              h5::open_whole(from->checkpoint));
  } else {
    writer_ = std::make_unique<ResultsWriter>(run.output, run.live, about, series_of(experiment_),
                                              clients());
    for (const auto& [group, parameters] : experiment_.initial().parts()) {
      if (!run.saves("init")) break;
      write_parameters(writer_->file(), "/model/init/" + group, parameters);
    }
    std::vector<NamedTensor> graph;
    for (auto& [name, values] : experiment_.config().algorithm->graph()) {
      graph.push_back({name, values});
    }
    if (!graph.empty()) write_parameters(writer_->file(), "/graph", graph);
    if (run.saves("partition")) {
      write_partition(h5::create_group(writer_->file(), "/partition"), experiment_.partition());
    }
  }
  if (run.saves("draws")) {
    writer_->declare_cohorts(experiment_.cohort_limit());
    writer_->declare_draws(draws_of(1));
  }
  for (const auto& [group, parameters] : experiment_.first_record().parts()) {
    writer_->declare_model(group, parameters);
  }
  if (run.saves("personal")) {
    writer_->declare_personal(experiment_.partition().clients(),
                              parameters_of(experiment_.initial().global));
  }
}

RunHeader Recorder::header(const std::string& command_line,
                           const std::vector<std::string>& hosts) const {
  return {.config = experiment_.config().to_ini(),
          .command_line = command_line,
          .seed = experiment_.config().run.seed,
          .ranks = static_cast<std::int64_t>(hosts.size()),
          .device = experiment_.config().run.device == DeviceKind::Cuda ? "cuda" : "cpu",
          .block = experiment_.block_width(),
          .hostnames = hosts};
}

ClientTable Recorder::clients() const {
  ClientTable table;
  table.edge = experiment_.placement().edge_of_client();
  const Partition& partition = experiment_.partition();
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    table.train_samples.push_back(partition.train.count(client));
    table.test_samples.push_back(partition.test.count(client));
  }
  table.classes = experiment_.model().classes();
  return table;
}

void Recorder::write_personal_models() {
  const std::string& output = experiment_.config().run.output;
  experiment_.gather_personal_models(
      [&](std::span<const std::int64_t> clients, const Rows& models) {
        naming_file(output, [&] {
          for (std::size_t c = 0; c < clients.size(); ++c) {
            const Tensor row = models.values.narrow(0, static_cast<std::int64_t>(c), 1);
            writer_->write_personal(clients[c], parameters_of({row, models.layout}));
          }
        });
      });
}

void Recorder::record(const RoundReport& report) {
  const RunOptions& options = experiment_.config().run;
  if (report.round == options.rounds && options.saves("personal")) write_personal_models();
  if (!writer_) return;
  RoundMetrics metrics = report.metrics;
  metrics.seconds_io = io_watch_.lap();
  const Timed timed(io_watch_);
  const RunOptions& run = experiment_.config().run;
  naming_file(run.output, [&] {
    if (run.saves("draws")) {
      writer_->append_cohort(*report.cohort);
      const std::vector<NamedTensor> draws = draws_of(report.round);
      if (!draws.empty()) writer_->append_draws(draws);
    }
    if (report.evaluated) {
      writer_->append_client_accuracy(report.round, report.personal->accuracy(),
                                      report.personal->best());
    }
    if (report.round == run.rounds) write_parts(experiment_.last_evaluated());
    writer_->append_round(report.round, metrics.values());
  });
}

std::vector<NamedTensor> Recorder::draws_of(std::int64_t round) const {
  std::vector<NamedTensor> draws;
  for (auto& [name, values] : experiment_.config().algorithm->drawn_in(round)) {
    draws.push_back({name, values});
  }
  return draws;
}

void Recorder::write_parts(const ModelRecord& model) {
  for (const auto& [group, parameters] : model.parts()) writer_->write_model(group, parameters);
}

void Recorder::write_model(const ModelRecord& model) {
  if (!writer_) return;
  naming_file(experiment_.config().run.output, [&] { write_parts(model); });
}

void Recorder::finish(const std::string& status) {
  if (!writer_) return;
  naming_file(experiment_.config().run.output, [&] { writer_->finish(status); });
}

void Recorder::fail() noexcept {
  try {
    if (writer_) writer_->finish("failed");
  } catch (const std::exception&) {
    // The failure that led here is what the user reads.
  }
}

}  // namespace fedhpc
