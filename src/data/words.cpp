// Sentences of a made-up language, every word told by the one before: text for models of
// sequences, which needs no files. Words are the numbers 0..K-1, and a sample is L + 1 of them:
//
//   w_0 ~ uniform,  w_{i+1} = s_{j}(w_i) with P(j) = 1/2, 1/4, 1/8, 1/8 for j = 0..3
//   x = (w_0, ..., w_{L-1}),  targets = (w_1, ..., w_L)
//
// The four successors s_0..s_3 of a word are drawn with replacement, once for all clients. Each
// client has a way of its own with a word with probability `own`: successors of its own. Who knows
// the language and the client tells at least half of all words; who knows the language alone about
// (1 - own) / 2. K is data.classes, L data.features, `own` data.own_words. The label is w_L.
//
// Draws (Purpose::Generator). Word w: epoch = w, with pass = 2 the common successors and, with
// pass = 1 and client = k, a uniform for whether client k has its own and the four. The i-th sample
// of client k: pass = 0, epoch = i, client = k: w_0, then a uniform for each j. With
// data.split=official a further fifth (at least 1) of samples per client is the official test set,
// i counting on.

#include <array>
#include <numeric>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

#include "data/datasets.hpp"
#include "data/samples_of_clients.hpp"

namespace fedhpc {

namespace {

using Successors = std::array<std::int64_t, 4>;

/// Which successor a uniform number in [0, 1) takes.
std::size_t successor_of(double uniform) {
  return uniform < 0.5 ? 0 : uniform < 0.75 ? 1 : uniform < 0.875 ? 2 : 3;
}

class Words : public Dataset {
 public:
  explicit Words(const DataOptions& options)
      : options_(options), samples_(options), common_(static_cast<std::size_t>(options.classes)) {
    if (options.classes < 3) {
      throw ConfigError(concat("data.classes = ", options.classes,
                               " is too little for data.name = words, of which two would be the "
                               "answers yes and no; give at least 3"));
    }
    for (std::size_t word = 0; word < common_.size(); ++word) {
      Draws draws = draws_of({.pass = 2, .epoch = word});
      common_[word] = draw_successors(draws);
    }
  }

  std::vector<std::int64_t> shape() const override { return {options_.features}; }
  std::int64_t classes() const override { return options_.classes; }
  std::int64_t num_train() const override { return samples_.num_train(); }
  std::int64_t num_test() const override { return samples_.num_test(); }
  bool on_demand() const override { return true; }
  std::vector<std::int64_t> natural_clients() const override { return samples_.clients(); }

  Targets targets() const override {
    Targets targets{.kind = Targets::Kind::Whole, .count = options_.features};
    targets.values.resize(common_.size());
    std::iota(targets.values.begin(), targets.values.end(), 0);
    return targets;
  }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> labels;
    labels.reserve(static_cast<std::size_t>(num_train() + num_test()));
    Language language;
    std::vector<double> words(static_cast<std::size_t>(options_.features));
    std::vector<std::int64_t> next(words.size());
    for (std::int64_t id = 0; id < num_train() + num_test(); ++id) {
      generate(id, language, words.data(), next.data());
      labels.push_back(next.back());
    }
    return labels;
  }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    const std::int64_t length = options_.features;
    Samples samples{at::empty({count, length}, at::kDouble), at::empty({count}, at::kLong),
                    at::empty({count, length}, at::kLong)};
    auto* words = samples.features.data_ptr<double>();
    auto* labels = samples.labels.data_ptr<std::int64_t>();
    auto* next = samples.targets.data_ptr<std::int64_t>();
    Language language;
    for (const std::int64_t i : samples_.by_client(ids)) {
      generate(ids[i], language, words + i * length, next + i * length);
      labels[i] = next[(i + 1) * length - 1];
    }
    return samples;
  }

 private:
  /// The successors that a client's sentences follow.
  struct Language {
    std::int64_t client = -1;
    std::vector<Successors> successors;  // [K]
  };

  Draws draws_of(DrawKey key) const {
    key.seed = static_cast<std::uint64_t>(options_.seed);
    key.purpose = Purpose::Generator;
    return Draws(key);
  }

  Successors draw_successors(Draws& draws) const {
    Successors successors;
    for (std::int64_t& word : successors) word = draws.below(options_.classes);
    return successors;
  }

  Language language_of(std::int64_t client) const {
    Language language{client, common_};
    for (std::size_t word = 0; word < common_.size(); ++word) {
      Draws draws =
          draws_of({.pass = 1, .epoch = word, .client = static_cast<std::uint64_t>(client)});
      if (draws.uniform() < options_.own_words) language.successors[word] = draw_successors(draws);
    }
    return language;
  }

  /// Writes the words of a sample and those that follow them. `language` is that of the sample
  /// before and is drawn again only when the client changes.
  void generate(std::int64_t id, Language& language, double* words, std::int64_t* next) const {
    const auto [client, number] = samples_.place_of(id);
    if (client != language.client) language = language_of(client);
    Draws draws = draws_of({.epoch = static_cast<std::uint64_t>(number),
                            .client = static_cast<std::uint64_t>(client)});
    std::int64_t word = draws.below(options_.classes);
    for (std::int64_t i = 0; i < options_.features; ++i) {
      words[i] = static_cast<double>(word);
      word = language.successors[word][successor_of(draws.uniform())];
      next[i] = word;
    }
  }

  DataOptions options_;
  SamplesOfClients samples_;
  std::vector<Successors> common_;  // [K]
};

}  // namespace

std::unique_ptr<Dataset> open_words(const DataOptions& options) {
  return std::make_unique<Words>(options);
}

}  // namespace fedhpc
