#include "reference/problem.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>

#include "fedhpc/engine/experiment.hpp"

namespace fedhpc::reference {

namespace {

std::vector<std::int64_t> stable_argsort(const DrawKey& key, std::int64_t n) {
  Draws draws(key);
  std::vector<std::uint64_t> words;
  for (std::int64_t i = 0; i < n; ++i) words.push_back(draws.raw());
  std::vector<std::int64_t> order(words.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return words[static_cast<std::size_t>(a)] < words[static_cast<std::size_t>(b)];
  });
  return order;
}

OptimizerSettings optimizer_settings(const Config& config) {
  const TrainOptions& train = config.train;
  OptimizerSettings settings{.name = config.options().entry("train.optimizer").print(),
                             .lr = train.lr,
                             .momentum = train.momentum,
                             .weight_decay = train.weight_decay,
                             .clip_norm = train.clip_norm};
  if (settings.name == "sgd" && train.momentum > 0) {
    settings.name = train.nesterov ? "nesterov" : "momentum";
  }
  return settings;
}

/// [n, D] float64
Tensor prepared(const DataOptions& options, const Tensor& features) {
  if (features.scalar_type() == at::kDouble) return features;
  require(options.standardize == Standardize::Half, "references take pixels by halves");
  return features.to(at::kDouble).div(255).sub(0.5).div(0.5);
}

}  // namespace

Problem make_problem(const testing::Keys& keys) {
  Config config(testing::assignments_of(keys), "reference.ini");
  const std::unique_ptr<Dataset> dataset = open_dataset(config.data);
  const Partition partition = make_partition(config.data, *dataset);
  Problem problem;
  for (std::int64_t k = 0; k < partition.clients(); ++k) {
    const Samples samples = dataset->read(partition.train.of(k));
    problem.clients.push_back({prepared(config.data, samples.features), samples.labels});
    const Samples tests = dataset->read(partition.test.of(k));
    problem.tests.push_back({prepared(config.data, tests.features), tests.labels});
  }
  const std::unique_ptr<Model> model =
      make_model(config.model, dataset->shape(), dataset->classes());
  problem.model = config.model;
  problem.layout = model->layout();
  problem.shape = dataset->shape();
  problem.seed = static_cast<std::uint64_t>(config.run.seed);
  const Rows row{initial_row(*model->layout(), problem.seed, at::kDouble), model->layout()};
  for (const NamedTensor& parameter : parameters_of(row)) {
    problem.initial.push_back(parameter.values.clone());
  }
  problem.rounds = config.run.rounds;
  problem.participation = config.topology.participation;
  problem.edges = config.topology.edges;
  problem.edge_participation = config.topology.edge_participation;
  problem.batch_size = config.train.batch_size;
  problem.local_steps = config.train.local_steps;
  problem.local_epochs = config.train.local_epochs;
  problem.stragglers = config.train.stragglers;
  problem.stragglers_away = config.train.straggler_work == StragglerWork::None;
  problem.clip = config.privacy.clip;
  problem.noise = config.privacy.noise;
  problem.lr = config.train.lr;
  problem.optimizer = optimizer_settings(config);
  problem.decay_biases = config.train.decay_biases;
  const auto value_of = [&](const std::string& key) {
    return keys.contains(key) ? keys.at(key) : std::string();
  };
  if (value_of("train.lr_schedule") == "exponential") problem.lr_decay = config.train.lr_decay;
  problem.lr_by_epoch = value_of("train.lr_unit") == "epoch";
  if (value_of("algorithm.name") == "hierfavg") {
    problem.trainings = std::stoll(config.options().entry("algorithm.edge_rounds").print());
  }
  const auto weighting = keys.find("algorithm.weighting");
  problem.uniform = weighting != keys.end() && weighting->second == "uniform";
  problem.by_batches = weighting != keys.end() && weighting->second == "batches";
  return problem;
}

std::vector<std::int64_t> drawn(const DrawKey& key, std::int64_t n, double fraction) {
  std::vector<std::int64_t> order = stable_argsort(key, n);
  const double size = std::floor(fraction * static_cast<double>(n) + 0.5);
  order.resize(static_cast<std::size_t>(std::max(1.0, size)));
  std::sort(order.begin(), order.end());
  return order;
}

namespace {

double probability_of(const Problem& problem, std::int64_t k) {
  return problem.stragglers[static_cast<std::size_t>(k) % problem.stragglers.size()];
}

/// Two uniforms: a client is late if the first is small, and by the second.
std::pair<double, double> lateness(const Problem& problem, std::int64_t k, std::int64_t round) {
  Draws draws({.seed = problem.seed,
               .purpose = static_cast<Purpose>(16),
               .client = static_cast<std::uint64_t>(k),
               .round = static_cast<std::uint64_t>(round)});
  const auto uniform = [&] { return static_cast<double>(draws.raw() >> 11) * std::pow(2.0, -53); };
  const double first = uniform();
  return {first, uniform()};
}

}  // namespace

std::vector<std::int64_t> without_absent(const Problem& problem,
                                         const std::vector<std::int64_t>& clients,
                                         std::int64_t round) {
  if (!problem.stragglers_away || clients.empty()) return clients;
  std::vector<std::int64_t> here;
  std::int64_t last = clients.front();
  for (const std::int64_t k : clients) {
    const double late = lateness(problem, k, round).first;
    if (late >= probability_of(problem, k)) here.push_back(k);
    if (late > lateness(problem, last, round).first) last = k;
  }
  if (here.empty()) here.push_back(last);
  return here;
}

bool draws_each(const Problem& problem) {
  return problem.clip > 0 && problem.noise > 0 && problem.participation < 1;
}

DrawnEach drawn_each(const Problem& problem, std::int64_t round) {
  const auto clients = static_cast<std::int64_t>(problem.clients.size());
  const double wanted =
      std::max(1.0, std::floor(problem.participation * static_cast<double>(clients) + 0.5));
  const double rate = wanted / static_cast<double>(clients);
  const auto has_samples = [&](std::int64_t k) {
    return problem.clients[static_cast<std::size_t>(k)].labels.size(0) > 0;
  };
  DrawnEach found;
  double expected = 0;
  std::pair<double, std::int64_t> nearest{2, -1};
  for (std::int64_t k = 0; k < clients; ++k) {
    Draws draws({.seed = problem.seed,
                 .purpose = Purpose::Cohort,
                 .client = static_cast<std::uint64_t>(k),
                 .round = static_cast<std::uint64_t>(round)});
    const double u = draws.uniform();
    if (u < rate) found.clients.push_back(k);
    if (!has_samples(k)) continue;
    nearest = std::min(nearest, {u, k});
    expected += rate * (problem.stragglers_away ? 1 - probability_of(problem, k) : 1);
  }
  if (problem.stragglers_away) {
    std::erase_if(found.clients, [&](std::int64_t k) {
      return lateness(problem, k, round).first < probability_of(problem, k);
    });
  }
  auto trained = std::ranges::count_if(found.clients, has_samples);
  if (trained == 0) {
    found.clients.push_back(nearest.second);
    std::sort(found.clients.begin(), found.clients.end());
    found.stands_in = true;
    trained = 1;
  }
  found.times = static_cast<double>(trained) / expected;
  return found;
}

std::vector<std::int64_t> cohort(const Problem& problem, std::int64_t round) {
  if (draws_each(problem)) return drawn_each(problem, round).clients;
  const auto clients = static_cast<std::int64_t>(problem.clients.size());
  return without_absent(problem,
                        drawn({.seed = problem.seed,
                               .purpose = Purpose::Cohort,
                               .round = static_cast<std::uint64_t>(round)},
                              clients, problem.participation),
                        round);
}

std::vector<EdgeCohort> edge_cohorts(const Problem& problem, std::int64_t round) {
  DrawKey key{.seed = problem.seed,
              .purpose = Purpose::Cohort,
              .pass = 1,
              .round = static_cast<std::uint64_t>(round)};
  const auto n = static_cast<std::int64_t>(problem.clients.size());
  std::vector<EdgeCohort> cohorts;
  for (const std::int64_t edge : drawn(key, problem.edges, problem.edge_participation)) {
    std::vector<std::int64_t> members;
    for (std::int64_t c = 0; c < n; ++c) {
      if (c * problem.edges / n == edge) members.push_back(c);
    }
    EdgeCohort cohort{.edge = edge, .clients = {}};
    DrawKey of_edge = key;
    of_edge.pass = 0;
    of_edge.client = static_cast<std::uint64_t>(edge);
    for (const std::int64_t place :
         drawn(of_edge, static_cast<std::int64_t>(members.size()), problem.participation)) {
      cohort.clients.push_back(members[static_cast<std::size_t>(place)]);
    }
    cohort.drawn = cohort.clients.size();
    cohort.clients = without_absent(problem, cohort.clients, round);
    cohorts.push_back(cohort);
  }
  return cohorts;
}

namespace {

std::vector<std::vector<std::int64_t>> all_batches(const Problem& problem, std::int64_t k,
                                                   std::int64_t round, std::int64_t pass,
                                                   Purpose purpose) {
  const std::int64_t n = problem.clients[static_cast<std::size_t>(k)].labels.size(0);
  std::vector<std::vector<std::int64_t>> all;
  const std::int64_t size = problem.batch_size > 0 ? problem.batch_size : n;
  const std::int64_t smallest = problem.layout->count(Tag::Norm) > 0 ? 2 : 1;
  if (std::min(n, size) < smallest) return all;
  for (std::int64_t epoch = 0;; ++epoch) {
    if (problem.local_steps == 0 && epoch == problem.local_epochs) return all;
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    if (problem.batch_size > 0) {
      order = stable_argsort({.seed = problem.seed,
                              .purpose = purpose,
                              .pass = static_cast<std::uint64_t>(pass),
                              .epoch = static_cast<std::uint64_t>(epoch),
                              .client = static_cast<std::uint64_t>(k),
                              .round = static_cast<std::uint64_t>(round)},
                             n);
    }
    for (std::int64_t begin = 0; begin < n; begin += size) {
      const std::int64_t end = std::min(begin + size, n);
      if (end - begin < smallest) continue;
      all.emplace_back(order.begin() + begin, order.begin() + end);
      if (static_cast<std::int64_t>(all.size()) == problem.local_steps) return all;
    }
  }
}

}  // namespace

std::vector<std::vector<std::int64_t>> batches(const Problem& problem, std::int64_t k,
                                               std::int64_t round, std::int64_t pass,
                                               Purpose purpose) {
  std::vector<std::vector<std::int64_t>> all = all_batches(problem, k, round, pass, purpose);
  if (purpose != Purpose::Batches || problem.stragglers_away) return all;
  const auto [late, by] = lateness(problem, k, round);
  if (late < probability_of(problem, k)) {
    all.resize(static_cast<std::size_t>(std::ceil((1 - by) * static_cast<double>(all.size()))));
  }
  return all;
}

std::vector<std::vector<std::int64_t>> batches_of_share(const Problem& problem, std::int64_t k,
                                                        std::int64_t round, std::int64_t pass,
                                                        double share, bool slice) {
  const std::int64_t n = problem.clients[static_cast<std::size_t>(k)].labels.size(0);
  std::vector<std::vector<std::int64_t>> all;
  if (n == 0) return all;
  const auto rounded =
      static_cast<std::int64_t>(std::floor(share * static_cast<double>(n) + (slice ? 0 : 0.5)));
  const std::int64_t visited = std::max<std::int64_t>(1, rounded);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (slice) {
    Draws draws({.seed = problem.seed,
                 .purpose = Purpose::Batches,
                 .pass = 1,
                 .client = static_cast<std::uint64_t>(k),
                 .round = static_cast<std::uint64_t>(round)});
    const double uniform = static_cast<double>(draws.raw() >> 11) * std::pow(2.0, -53);
    const auto begin = static_cast<std::int64_t>(uniform * static_cast<double>(n - visited + 1));
    std::iota(order.begin(), order.end(), begin);
  } else if (problem.batch_size > 0 || visited < n) {
    order = stable_argsort({.seed = problem.seed,
                            .purpose = Purpose::Batches,
                            .pass = static_cast<std::uint64_t>(pass),
                            .client = static_cast<std::uint64_t>(k),
                            .round = static_cast<std::uint64_t>(round)},
                           n);
  }
  const std::int64_t size = problem.batch_size > 0 ? problem.batch_size : visited;
  const std::int64_t smallest = problem.layout->count(Tag::Norm) > 0 ? 2 : 1;
  for (std::int64_t begin = 0; begin < visited; begin += size) {
    const std::int64_t end = std::min(begin + size, visited);
    if (end - begin >= smallest) all.emplace_back(order.begin() + begin, order.begin() + end);
  }
  return all;
}

double rate_of(const Problem& problem, std::int64_t k, std::int64_t round, std::int64_t pass,
               std::size_t step) {
  std::int64_t units = round - 1;
  if (problem.lr_by_epoch) {
    const std::int64_t n = problem.clients[static_cast<std::size_t>(k)].labels.size(0);
    const std::int64_t size = problem.batch_size > 0 ? problem.batch_size : n;
    std::size_t in_epoch = 0;
    const std::int64_t smallest = problem.layout->count(Tag::Norm) > 0 ? 2 : 1;
    for (std::int64_t begin = 0; begin < n; begin += size) {
      in_epoch += std::min(n - begin, size) >= smallest ? 1 : 0;
    }
    const std::size_t steps = all_batches(problem, k, round, pass, Purpose::Batches).size();
    const std::int64_t training = problem.trainings > 1 ? pass : 0;
    const auto epochs = static_cast<std::int64_t>((steps + in_epoch - 1) / in_epoch);
    units = ((round - 1) * problem.trainings + training) * epochs +
            static_cast<std::int64_t>(step / in_epoch);
  }
  double rate = 1;
  for (std::int64_t unit = 0; unit < units; ++unit) rate *= problem.lr_decay;
  return rate;
}

Tensor flatten(const Parameters& parameters) {
  std::vector<Tensor> flat;
  for (const Tensor& parameter : parameters) flat.push_back(parameter.reshape({-1}));
  return at::cat(flat);
}

Parameters unflatten(const Tensor& flat, const Parameters& like) {
  Parameters parameters;
  std::int64_t offset = 0;
  for (const Tensor& one : like) {
    parameters.push_back(flat.narrow(0, offset, one.numel()).view(one.sizes()).clone());
    offset += one.numel();
  }
  return parameters;
}

}  // namespace fedhpc::reference
