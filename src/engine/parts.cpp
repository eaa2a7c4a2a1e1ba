#include "fedhpc/engine/parts.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <ATen/ops/zeros.h>

#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/model_record.hpp"

#include "engine/evaluation.hpp"

namespace fedhpc {

namespace {

/// Throws ConfigError for a request that leaves clients without samples by its sizes alone. (A
/// client left empty by a draw or by a file is no error: it never trains.)
void check_sizes(const DataOptions& data, const Dataset& dataset, const Partition& partition) {
  const std::int64_t samples =
      dataset.num_train() + (data.split == DataSplit::Client ? dataset.num_test() : 0);
  if (data.partition != "file" && data.clients > samples) {
    throw ConfigError(concat("data.clients = ", data.clients, " is more than the ", samples,
                             " samples of ", data.name,
                             "; allowed: at most one client per sample"));
  }
  if (partition.train.samples.empty()) {
    throw ConfigError(
        data.partition == "file"
            ? concat("data.partition_file = ", data.partition_file,
                     " gives no client a training sample; give another file")
            : concat(
                  "data.train_fraction = ", data.train_fraction,
                  " leaves no client a training sample; raise it, or give clients more samples"));
  }
}

/// Calls `build`; memory that is not there becomes a ConfigError with `what` was being made.
void within_memory(const std::string& what, const std::function<void()>& build) {
  const auto refuse = [&] {
    return ConfigError(concat(what, " does not fit into memory; make it smaller"));
  };
  try {
    build();
  } catch (const std::bad_alloc&) {
    throw refuse();
  } catch (const std::length_error&) {
    throw refuse();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
    if (!says("allocate memory") && !says("out of memory")) throw;
    throw refuse();
  }
}

Context context_of(const RunOptions& run) {
  return {.type = scalar_type(run.dtype),
          .device = run.device == DeviceKind::Cuda ? current_cuda_device() : at::kCPU,
          .summation = run.reproducible ? Summation::Reproducible : Summation::Fast,
          .seed = static_cast<std::uint64_t>(run.seed)};
}

}  // namespace

Parts::Parts(Config& options, Communicator& ranks, const Resumption* from)
    : config(options), comm(ranks), context(context_of(options.run)), network(options.network) {
  std::optional<Placement> placed;
  const auto with_data = [this](const std::function<void()>& build) {
    fail_together(comm, [&] {
      within_memory(concat("the data of data.name = ", config.data.name,
                           " with data.clients = ", config.data.clients),
                    build);
    });
  };
  identify_processors();
  with_data([&] { placed = open_data(); });
  tell_unused_numbers();
  require_same_data();
  topology = std::make_unique<Topology>(comm, *std::move(placed));
  with_data([&] { shard = own_shard(Shard::kHeldBytes); });
  share_samples();
  with_data([&] { load_samples(); });
  if (shared) shared->written();
  fail_together(comm, [&] {
    within_memory(concat("the model model.name = ", config.model.name), [&] { open_model(from); });
  });
  require_same_model();
  identify_code();
  fail_together(comm, [&] { within_memory("the data on the device", [&] { move_to_device(); }); });
  trainer = std::make_unique<LocalTrainer>(*model, *shard, config.train, context);
  check_steps();
  fail_together(comm, [&] {
    within_memory(concat("what model.name = ", config.model.name, " makes of samples"), [&] {
      evaluator = std::make_unique<Evaluator>(
          *model, context, [this] { comm.progress(); }, loss);
    });
  });
  open_store();
  const Setup setup({.context = context,
                     .initial = initial,
                     .training = config.train,
                     .topology = *topology,
                     .store = *store,
                     .links = *links,
                     .edge_models = has_edge_models(),
                     .factor_map = factor_map.get(),
                     .factors = initial_factors,
                     .metrics = own_metrics});
  // A method of a plug-in may refuse on one rank alone.
  fail_together(comm, [&] { method().initialise(setup); });
  for (const Metric& metric : own_metrics) {
    noted.insert(metric.noted_name.empty() ? metric.name : metric.noted_name);
  }
  if (loss.kind() == LossKind::MeanSquaredError) {
    std::erase_if(own_metrics, [](const Metric& metric) {
      return metric.name.find("accuracy") != std::string::npos;
    });
  }
  open_privacy();
  fail_together(comm, [&] { require_different_series(); });
  block_width = chosen_block_width(from);
  start_moves();
}

std::vector<Metric> Parts::series() const {
  std::vector<Metric> series = metrics_of(loss);
  series.insert(series.end(), own_metrics.begin(), own_metrics.end());
  return series;
}

std::vector<Metric> Parts::series_to_come() const {
  std::int64_t tests = 0;  // of clients
  for (std::int64_t c = 0; c < partition.clients(); ++c) tests += partition.test.count(c);
  const bool scored = tests > 0;
  const bool official = server_shard != nullptr && dataset->num_test() > 0;
  const bool global = has_global(method().traits().models);
  const bool edges = has_edge_models();
  const bool validated = validation_shard != nullptr;
  const std::pair<std::string_view, bool> beginnings[] = {
      {"global_", global && (scored || official)},
      {"personal_", scored},
      {"participant_", scored},
      {"best_personal_", scored},
      {"edge_", edges && scored},
      {"validation_", validated},
      {"validation_global_", validated && global},
      {"bytes_up_client_edge", edges},
      {"bytes_down_client_edge", edges},
      {"bytes_up_edge_cloud", edges},
      {"bytes_down_edge_cloud", edges},
      {"bytes_up_client_cloud", !edges},
      {"bytes_down_client_cloud", !edges},
      {"simulated_seconds", network.on()}};
  std::vector<Metric> to_come = metrics_of(loss);
  std::erase_if(to_come, [&](const Metric& metric) {
    return std::ranges::any_of(beginnings, [&](const auto& one) {
      return metric.name.starts_with(one.first) && !one.second;
    });
  });
  to_come.insert(to_come.end(), own_metrics.begin(), own_metrics.end());
  return to_come;
}

void Parts::open_store() {
  if (context.device.is_cpu()) {
    store = std::make_unique<ClientStore>(shard->clients(), config.store);
  } else {
    device_sharers_ = ranks_on_card(comm, gpu_library(), context.device.index());
    // A small card has less room for columns than the usual limit. They may lie in the memory of graphs and once more
    // outside of it: a quarter, beside the block's 0.4 (block_width.cpp) and slices. A limit is simpler than to count
    // them in a block's bytes, for how many there are depends on the ways that convolutions will take.
    model->keep_columns(free_device_bytes() / 8);
    device_memory.emplace(context.device, [this] { return free_device_bytes(); });
    pinned_memory.emplace(gpu_library());
    store = std::make_unique<ClientStore>(shard->clients(), config.store, &*device_memory,
                                          *pinned_memory);
  }
  links = std::make_unique<LinkMemory>(*store);
  const bool has_buffers = model->layout()->count(Tag::Buffer) > 0;
  if (has_buffers && config.train.buffers == BufferPlace::Local) {
    buffers = std::make_unique<OwnBuffers>(*store, initial);
  }
  if (!has_buffers && config.train.buffers == BufferPlace::Local) {
    run_log().of_run(LogLevel::Warning, concat("train.buffers = local has no effect: model.name = ",
                                               config.model.name, " has no batch norm"));
  }
}

std::int64_t Parts::chosen_block_width(const Resumption* from) {
  if (config.train.block > 0) return config.train.block;
  if (from != nullptr) return from->block;
  return choose_block_width(
      comm, *trainer, initial,
      {.participants = cohort_limit(),
       .free_device_bytes = context.device.is_cpu() ? 0 : free_device_bytes()});
}

std::int64_t Parts::free_device_bytes() const {
  return gpu_library().free_bytes() / device_sharers_;
}

Placement Parts::open_data() {
  DataOptions& data = config.data;
  if (data.partition == "file" && !data.partition_file.empty()) {
    const std::int64_t clients = clients_in_partition_file(data.partition_file);
    const Level given_by = config.options().origin("data.clients").level;
    const bool given =
        is_given(given_by) && given_by >= config.options().origin("data.partition_file").level;
    if (given && data.clients != clients) {
      throw ConfigError(concat("data.clients = ", data.clients, ", but data.partition_file = ",
                               data.partition_file, " has ", clients, " clients; drop the key"));
    }
    data.clients = clients;
  }
  dataset = open_dataset(data);
  digests.data = digest_of(*dataset);
  partition = make_partition(data, *dataset);
  check_sizes(data, *dataset, partition);
  preparation = make_preparation(data, *dataset);
  return placed_on(comm.size());
}

void Parts::move_to_device() {
  if (context.device.is_cpu()) return;
  for (Stopwatch* watch : {&books.train_watch, &books.aggregate_watch, &books.evaluate_watch}) {
    watch->use_device_events();
  }
  shard->use_device_(context.device);
  for (Shard* other : {server_shard.get(), validation_shard.get()}) {
    if (other != nullptr) other->use_device_(context.device);
  }
  initial.values = initial.values.to(context.device);
  if (factor_map) initial_factors.values = initial_factors.values.to(context.device);
}

RoundServices Parts::services(LocalTrainer& of_round) {
  return {.context = context,
          .topology = *topology,
          .partition = partition,
          .model = *model,
          .shard = *shard,
          .trainer = of_round,
          .evaluator = *evaluator,
          .network = network,
          .books = books,
          .block_width = block_width,
          .links = links.get(),
          .buffers = buffers.get(),
          .privacy = privacy ? &*privacy : nullptr,
          .expected = draws_each() ? expected_participants() : 0,
          .series = &noted};
}

Adaptation Parts::adaptation_after(std::int64_t round) const {
  return {.trainer = *trainer, .round = round, .buffers = buffers.get()};
}

Tensor Parts::label_histogram(std::int64_t first, std::int64_t count) const {
  const std::int64_t classes = dataset->classes();
  Tensor counts = at::zeros({count, classes}, at::kLong);
  const std::vector<std::int64_t>& mine = shard->clients();
  auto client = std::lower_bound(mine.begin(), mine.end(), first);
  fail_together(comm, [&] {  // samples on demand are made
    for (; client != mine.end() && *client < first + count; ++client) {
      auto* row = counts.data_ptr<std::int64_t>() + (*client - first) * classes;
      for (const Shard* part : {shard.get(), validation_shard.get()}) {
        if (part == nullptr) continue;
        const std::vector<std::int64_t> own = part->label_histogram(*client);
        std::transform(own.begin(), own.end(), row, row, std::plus<>());
      }
    }
  });
  comm.sum_(counts);
  return counts;
}

}  // namespace fedhpc
