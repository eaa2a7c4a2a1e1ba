#include "fedhpc/io/results_writer.hpp"

#include <limits>

#include <ATen/ops/empty.h>

#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/core/processor.hpp"
#include "fedhpc/io/durable.hpp"

#include "io/tensor_types.hpp"

namespace fedhpc {

namespace {

constexpr std::size_t kLargestAttribute =
    60 * 1024;  // an HDF5 object header message ends at 64 KiB
constexpr std::size_t kLongestCommands = kLargestAttribute / 4;
constexpr std::size_t kStatusCapacity = 16;  // "interrupted" and room
constexpr std::size_t kTimeCapacity = 24;
constexpr hsize_t kSeriesChunk = 256;  // rounds

/// So many rows of these bytes as fill pages to nine tenths: each chunk has pages of its own.
hsize_t rows_of_pages(hsize_t row) {
  hsize_t bytes = h5::kPage;
  while (bytes / row == 0 || 10 * (bytes % row) > bytes) bytes += h5::kPage;
  return bytes / row;
}

h5::Handle open_or_create(const h5::Handle& file, const std::string& path, hid_t type,
                          const std::vector<hsize_t>& tail, hsize_t chunk_rows, int deflate = 0) {
  if (h5::exists(file, path)) return h5::open_dataset(file, path);
  return h5::create_extendible(file, path, type, tail, chunk_rows, deflate);
}

std::int64_t rounds_of(const h5::Handle& file) {
  return static_cast<std::int64_t>(h5::shape_of(h5::open_dataset(file, "/rounds/round")).front());
}

/// Where a run was started and resumed.
struct Starts {
  std::vector<std::int64_t> first_round;
  std::vector<std::int64_t> ranks;
};

/// A file without /starts tells of its last command alone; those that went on stand behind a "; ".
Starts starts_of(const h5::Handle& file) {
  if (!h5::exists(file, "/starts")) {
    if (h5::read_text_attribute(file, "command_line").find("; ") != std::string::npos) return {};
    return {{1}, {h5::read_integer_attribute(file, "ranks")}};
  }
  return {h5::read_vector<std::int64_t>(file, "/starts/first_round"),
          h5::read_vector<std::int64_t>(file, "/starts/ranks")};
}

void write_start(const h5::Handle& file, Starts starts, std::int64_t first_round,
                 std::int64_t ranks) {
  starts.first_round.push_back(first_round);
  starts.ranks.push_back(ranks);
  const h5::Handle group = h5::create_group(file, "/starts");
  h5::write_vector(group, "first_round", starts.first_round);
  h5::write_vector(group, "ranks", starts.ranks);
}

/// The data sets of a group of parameters, made where they are missing; `leading` dimensions come
/// before each one's own.
std::vector<std::pair<std::string, h5::Handle>> open_or_create_parameters(
    const h5::Handle& file, const std::string& group, const std::vector<NamedTensor>& parameters,
    const std::vector<hsize_t>& leading) {
  const bool known = h5::exists(file, group);
  if (!known) h5::create_group(file, group);
  std::vector<std::pair<std::string, h5::Handle>> datasets;
  for (const NamedTensor& parameter : parameters) {
    const std::string path = group + "/" + parameter.name;
    std::vector<hsize_t> shape = leading;
    for (const hsize_t size : shape_of(parameter.values)) shape.push_back(size);
    datasets.emplace_back(parameter.name,
                          known ? h5::open_dataset(file, path)
                                : h5::create_dataset(file, path, type_of(parameter.values), shape));
  }
  return datasets;
}

}  // namespace

ResultsWriter::ResultsWriter(const std::string& path, LiveMode live)
    : path_(link_target(path)),
      unfinished_(path_ + ".tmp"),
      swmr_(live == LiveMode::Swmr ||
            (live == LiveMode::Auto && keeps_write_order(folder_of(path_)))),
      file_(h5::open_file(unfinished_.path(),
                          swmr_ ? h5::Mode::CreateLive : h5::Mode::CreatePortable)) {}

ResultsWriter::ResultsWriter(const std::string& path, LiveMode live, const RunHeader& header,
                             const std::vector<Metric>& series, const ClientTable& clients)
    : ResultsWriter(path, live) {
  write_header(header);
  h5::replace_attribute(file_, "started", utc_now(), kTimeCapacity);
  h5::replace_attribute(file_, "run_id", new_run_id());
  write_start(file_, {}, 1, header.ranks);
  write_clients(clients);
  open_series(series);
  open_clients(clients.edge.size());
}

ResultsWriter::ResultsWriter(const std::string& path, LiveMode live, const RunHeader& header,
                             const std::vector<Metric>& series, const h5::Handle& earlier,
                             const std::vector<std::string>& but)
    : ResultsWriter(path, live) {
  std::vector<std::string> except{"/state", "/hostnames", "/config", "/starts"};
  except.insert(except.end(), but.begin(), but.end());
  h5::copy_contents(earlier, file_, except);
  write_start(file_, starts_of(earlier), rounds_of(earlier) + 1, header.ranks);
  const std::string commands = h5::read_text_attribute(file_, "command_line");
  const auto known = [&](const char* name) {
    return h5::has_attribute(earlier, name) ? h5::read_text_attribute(earlier, name) : "";
  };
  const std::string codes = known("code_digest");
  const std::string processors = known("processor"), commits = known("git_commit");
  write_header(header);
  h5::replace_attribute(file_, "processor", with_added(processors, header.processor));
  h5::replace_attribute(file_, "git_commit", with_added(commits, build_info().commit));
  if (!codes.empty()) {  // each version that took part
    const bool same = codes.ends_with(header.digests.code);
    h5::replace_attribute(file_, "code_digest",
                          same ? codes : concat(codes, ",", header.digests.code));
  }
  h5::replace_attribute(file_, "command_line",
                        (commands + "; " + header.command_line).substr(0, kLongestCommands));
  open_series(series);
  open_clients(h5::shape_of(h5::open_dataset(file_, "/clients/edge")).front());
}

void ResultsWriter::write_header(const RunHeader& header) {
  const BuildInfo build = build_info();
  h5::replace_attribute(file_, "fedhpc_version", build.version);
  h5::replace_attribute(file_, "git_commit", build.commit);
  if (header.config.size() < kLargestAttribute) {
    h5::replace_attribute(file_, "config", header.config);
  } else {
    h5::delete_attribute(file_, "config");  // of a shorter one, before a resume
    h5::write_texts(file_, "/config", {header.config});
  }
  h5::replace_attribute(file_, "command_line", header.command_line.substr(0, kLongestCommands));
  h5::replace_attribute(file_, "seed", header.seed);
  h5::replace_attribute(file_, "ranks", header.ranks);
  h5::replace_attribute(file_, "processor", header.processor);
  h5::replace_attribute(file_, "device", header.device);
  h5::replace_attribute(file_, "block", header.block);
  for (const auto& [name, digest] : header.digests.named()) {
    if (!digest.empty()) h5::replace_attribute(file_, name, digest);
  }
  h5::replace_attribute(file_, "finished", "", kTimeCapacity);
  h5::replace_attribute(file_, "status", "running", kStatusCapacity);
  h5::write_texts(file_, "/hostnames", header.hostnames);
}

void ResultsWriter::open_series(const std::vector<Metric>& series) {
  const bool fresh = !h5::exists(file_, "/rounds/round");
  round_ = open_or_create(file_, "/rounds/round", h5::type_of<std::int64_t>(), {}, kSeriesChunk);
  if (fresh) {
    h5::write_attribute(round_, "unit", "1");
    h5::write_attribute(round_, "meaning",
                        "round, counted from 1; flushed last: the commit record");
  }
  const std::vector<double> missing(h5::shape_of(round_).front(),
                                    std::numeric_limits<double>::quiet_NaN());
  for (const Metric& one : series) {
    const std::string path = "/rounds/" + one.name;
    const bool known = h5::exists(file_, path);
    h5::Handle dataset = open_or_create(file_, path, h5::type_of<double>(), {}, kSeriesChunk);
    if (!known) {
      h5::write_attribute(dataset, "unit", one.unit);
      h5::write_attribute(dataset, "meaning", one.meaning);
      for (const double& value : missing) h5::append(dataset, h5::type_of<double>(), &value);
    }
    series_.push_back(std::move(dataset));
  }
  for (const std::string& name : h5::names_in(file_, "/rounds")) {
    const auto is_it = [&](const Metric& one) { return one.name == name; };
    if (name == "round" || std::ranges::any_of(series, is_it)) continue;
    h5::Handle dataset = h5::open_dataset(file_, "/rounds/" + name);
    // fedhpc had left it as it was, once.
    for (std::size_t n = h5::shape_of(dataset).front(); n < missing.size(); ++n) {
      h5::append(dataset, h5::type_of<double>(), &missing[n]);
    }
    left_.push_back(std::move(dataset));
  }
}

void ResultsWriter::write_clients(const ClientTable& clients) {
  const hsize_t count = clients.edge.size();
  h5::write_vector(file_, "/clients/edge", clients.edge);
  h5::write_vector(file_, "/clients/train_samples", clients.train_samples);
  h5::write_vector(file_, "/clients/test_samples", clients.test_samples);
  if (!clients.validation_samples.empty()) {
    h5::write_vector(file_, "/clients/validation_samples", clients.validation_samples);
  }
  label_histogram_ =
      h5::create_dataset(file_, "/clients/label_histogram", h5::type_of<std::int64_t>(),
                         {count, static_cast<hsize_t>(clients.classes)});
  h5::write_vector(file_, "/clients/best_" + clients.measure,
                   std::vector<double>(count, std::numeric_limits<double>::quiet_NaN()));
}

void ResultsWriter::write_label_histogram(std::int64_t first, const Tensor& counts) {
  h5::write_rows(label_histogram_, h5::type_of<std::int64_t>(), static_cast<hsize_t>(first),
                 static_cast<hsize_t>(counts.size(0)), counts.const_data_ptr<std::int64_t>());
}

void ResultsWriter::open_clients(hsize_t count) {
  const std::string measure = h5::exists(file_, "/clients/best_rmse") ? "rmse" : "accuracy";
  const bool fresh = !h5::exists(file_, "/clients/" + measure);
  best_scores_ = h5::open_dataset(file_, "/clients/best_" + measure);
  client_scores_ = open_or_create(file_, "/clients/" + measure, h5::type_of<double>(), {count},
                                  /*chunk_rows=*/1, /*deflate=*/1);
  if (fresh) {
    h5::write_attribute(client_scores_, "meaning",
                        measure +
                            " of each client's current model on its own test samples, "
                            "[evaluations, clients]; NaN without test samples");
  }
  evaluated_rounds_ = open_or_create(file_, "/clients/evaluated_rounds",
                                     h5::type_of<std::int64_t>(), {}, kSeriesChunk);
}

void ResultsWriter::declare_model(const std::string& group,
                                  const std::vector<NamedTensor>& parameters) {
  model_[group] = open_or_create_parameters(file_, "/model/" + group, parameters, {});
}

void ResultsWriter::declare_personal(std::int64_t clients,
                                     const std::vector<NamedTensor>& parameters) {
  personal_ = open_or_create_parameters(file_, "/model/personal", parameters,
                                        {static_cast<hsize_t>(clients)});
}

void ResultsWriter::declare_cohorts(std::int64_t size) {
  cohort_size_ = size;
  cohorts_ = open_or_create(file_, "/draws/cohort", h5::type_of<std::int64_t>(),
                            {static_cast<hsize_t>(size)},
                            rows_of_pages(sizeof(std::int64_t) * static_cast<hsize_t>(size)));
}

void ResultsWriter::declare_draws(const std::vector<NamedTensor>& draws) {
  if (!draws.empty() && !h5::exists(file_, "/draws/factors")) {
    h5::create_group(file_, "/draws/factors");
  }
  for (const NamedTensor& draw : draws) {
    draws_.emplace_back(draw,
                        open_or_create(file_, "/draws/factors/" + draw.name, type_of(draw.values),
                                       shape_of(draw.values), /*chunk_rows=*/1));
  }
}

void ResultsWriter::start() {
  h5::flush_file(file_);
  if (swmr_) {
    if (H5Fstart_swmr_write(file_.id()) < 0) {
      throw Error(concat("HDF5: '", path_, "' cannot be opened to readers while it is written"));
    }
  } else {
    h5::release_lock(file_);
  }
  // Only now: whatever happens to the run, a file of this name can be read.
  unfinished_.finish(path_);
  id_ = id_of(path_);
  lock_ = FileLock(path_);
}

void write_parameters(const h5::Handle& file, const std::string& group,
                      const std::vector<NamedTensor>& parameters) {
  const h5::Handle made = h5::create_group(file, group);
  for (const NamedTensor& parameter : parameters) {
    const Tensor values = on_host(parameter.values).contiguous();
    const h5::Handle dataset =
        h5::create_dataset(made, parameter.name, type_of(values), shape_of(values));
    h5::write_all(dataset, type_of(values), values.data_ptr());
  }
}

std::string read_config(const h5::Handle& file) {
  if (h5::has_attribute(file, "config")) return h5::read_text_attribute(file, "config");
  return h5::read_texts(file, "/config").front();
}

}  // namespace fedhpc
