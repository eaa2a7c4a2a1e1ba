// Dirichlet: Li, Diao, Chen, He, "Federated Learning on Non-IID Data Silos: An Experimental Study"
// (NIID-Bench), ICDE 2022, rule "noniid-labeldir" of its public code, in that code's order:
//
//   for each label k:  p ~ Dir(alpha 1_N);  p_i = 0 where client i already holds >= S/N samples;
//                      p /= sum(p);  cut the shuffled samples of k at floor(cumsum(p) n_k)
//   repeat all of it until the smallest client holds data.min_samples samples
//
// Deviations: the samples of a label are shuffled once, not again in every try (the tries draw new
// shares); a try in which every share of a label was zeroed is dropped instead of dividing by zero.
// Limit case: alpha -> infinity gives every client the same number of samples of every label.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fedhpc/core/rng.hpp"

#include "data/partitioners.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kMaxTries = 2000;
// Clients that get too little are nearly independent: a try without any has probability e^-m where
// a try has m of them. After a few tries with many each, 2000 will not do either.
constexpr std::int64_t kTriesToJudge = 5;
constexpr std::int64_t kHopeless = 100;  // clients that get too little, in the best try

/// Where the samples of each label are cut: client i gets [cuts[k][i], cuts[k][i + 1]).
using Cuts = std::vector<std::vector<std::int64_t>>;

Draws draws_of(const DataOptions& options, std::int64_t attempt, std::size_t label) {
  return Draws({.seed = static_cast<std::uint64_t>(options.seed),
                .purpose = Purpose::Partition,
                .pass = static_cast<std::uint64_t>(PartitionDraw::DirichletShares),
                .epoch = static_cast<std::uint64_t>(attempt),
                .client = label});
}

/// The same draws by their logarithms, where alpha is so small that all of them are 0.
std::vector<double> draw_tiny_shares(Draws draws, const DataOptions& options,
                                     const std::vector<std::int64_t>& sizes, double limit) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::vector<double> logarithms;
  for (const std::int64_t size : sizes) {
    const double drawn = draws.log_gamma(options.alpha);
    logarithms.push_back(static_cast<double>(size) < limit ? drawn : kNone);
  }
  const double largest = *std::ranges::max_element(logarithms);
  if (largest == kNone) return {};
  std::vector<double> shares;
  for (const double one : logarithms) shares.push_back(std::exp(one - largest));
  return shares;
}

/// Shares of one label for clients that hold less than `limit`, or nothing when none is left.
std::vector<double> draw_shares(const DataOptions& options, std::int64_t attempt, std::size_t label,
                                const std::vector<std::int64_t>& sizes, double limit) {
  Draws draws = draws_of(options, attempt, label);
  std::vector<double> shares;
  for (const std::int64_t size : sizes) {
    const double drawn = draws.gamma(options.alpha);
    shares.push_back(static_cast<double>(size) < limit ? drawn : 0.0);
  }
  if (std::ranges::max(shares) == 0) {
    shares = draw_tiny_shares(draws_of(options, attempt, label), options, sizes, limit);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

/// What one try gives.
struct Try {
  Cuts cuts;                 // empty when it failed
  std::int64_t lacking = 0;  // clients that got too little
};

Try try_cuts(const DataOptions& options, const std::vector<std::int64_t>& label_sizes, double limit,
             std::int64_t attempt) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(options.clients), 0);
  Cuts cuts;
  for (std::size_t label = 0; label < label_sizes.size(); ++label) {
    const std::int64_t n = label_sizes[label];
    const std::vector<double> shares = draw_shares(options, attempt, label, sizes, limit);
    if (shares.empty()) return {.cuts = {}, .lacking = options.clients};
    std::vector<std::int64_t> cut{0};
    double cumulative = 0;
    for (std::size_t i = 0; i + 1 < shares.size(); ++i) {
      cumulative += shares[i];
      const auto place = static_cast<std::int64_t>(cumulative * static_cast<double>(n));
      cut.push_back(std::min(place, n));
    }
    cut.push_back(n);
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] += cut[i + 1] - cut[i];
    cuts.push_back(std::move(cut));
  }
  const auto lacking = std::count_if(sizes.begin(), sizes.end(),
                                     [&](std::int64_t size) { return size < options.min_samples; });
  if (lacking > 0) cuts.clear();
  return {.cuts = std::move(cuts), .lacking = lacking};
}

}  // namespace

Partition partition_dirichlet(const DataOptions& options, const Dataset& dataset) {
  const auto by_label = shuffled_by_label(options, dataset, PartitionDraw::DirichletOrder);
  std::vector<std::int64_t> label_sizes;
  for (const auto& samples : by_label) {
    label_sizes.push_back(static_cast<std::int64_t>(samples.size()));
  }
  const std::int64_t total = dealt_samples(options, dataset);
  const std::string remedy = "; lower data.min_samples or data.clients, or raise data.alpha";
  if (options.min_samples > total / options.clients) {
    throw ConfigError(concat("data.min_samples = ", options.min_samples,
                             " for data.clients = ", options.clients, " needs more than the ",
                             total, " samples of ", options.name, remedy));
  }
  const double limit = static_cast<double>(total) / static_cast<double>(options.clients);
  Cuts cuts;
  std::int64_t tries = 0;
  std::int64_t lacking = options.clients;  // in the best try
  while (cuts.empty() && tries < kMaxTries && (tries < kTriesToJudge || lacking <= kHopeless)) {
    Try one = try_cuts(options, label_sizes, limit, tries++);
    cuts = std::move(one.cuts);
    lacking = std::min(lacking, one.lacking);
  }
  if (cuts.empty()) {
    throw ConfigError(concat("data.partition = dirichlet with data.alpha = ", options.alpha,
                             " found no partition of ", total, " samples that gives each of ",
                             options.clients, " clients at least ", options.min_samples, " in ",
                             tries, " tries: the best one left ", lacking, " with less", remedy));
  }
  std::vector<std::vector<std::int64_t>> owned(static_cast<std::size_t>(options.clients));
  for (std::size_t label = 0; label < cuts.size(); ++label) {
    for (std::size_t i = 0; i < owned.size(); ++i) {
      owned[i].insert(owned[i].end(), by_label[label].begin() + cuts[label][i],
                      by_label[label].begin() + cuts[label][i + 1]);
    }
  }
  return split_clients(owned, options);
}

}  // namespace fedhpc
