#include "fedhpc/algorithms/fedbat.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/weighting.hpp"

namespace fedhpc {

namespace {

constexpr std::uint64_t kOfClients = 0;  // passes of draws
constexpr std::uint64_t kOfServer = 1;
constexpr double kFirstStep = 0.01;  // alpha_0 where no warm-up gives it from its updates

/// Numbers of L tensors as a row that an optimizer moves.
LayoutPtr layout_of_sizes(std::int64_t tensors) {
  auto layout = std::make_shared<Layout>();
  layout->add("a", {tensors}, tensors, Tag::Trainable);
  return layout;
}

}  // namespace

/// The step sizes alpha of a block of clients, and what decides them.
struct FedBAT::StepSizes {
  std::span<const std::int64_t> clients;
  std::int64_t round = 0;
  std::vector<std::int64_t> counts;   // [C] tau
  std::vector<std::int64_t> warm_up;  // [C] floor(phi tau)
  Tensor alpha_0;                     // [C, L] float64 on the host, as all of them
  Tensor a;                           // [C, L]
  Tensor gradient;                    // [C, L] that of a

  /// Rows fall by tau, so that the clients in their warm-up at step s are the first.
  std::int64_t in_warm_up(std::int64_t s) const {
    return std::count_if(warm_up.begin(), warm_up.end(), [&](std::int64_t n) { return s < n; });
  }
  std::int64_t trained() const {
    return std::count_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; });
  }
};

void FedBAT::declare(OptionSet& options) {
  options.add("algorithm.warm_up", warm_up_, {.low = 0, .high = 1},
              "share of a client's local steps that train updates in full; 1: they stay so");
  options.add("algorithm.step_rate", step_rate_, at_least(0.0),
              "rho: how fast the step sizes alpha of binary updates are learned; 0: they stay");
  options.add("algorithm.least_step", least_step_, at_least(0.0),
              "the least step size alpha of binary updates");
  options.add("algorithm.most_step", most_step_, above(0.0),
              "the largest step size alpha of binary updates");
  for (const char* key : {"algorithm.step_rate", "algorithm.least_step", "algorithm.most_step"}) {
    options.acts(key, unless("algorithm.warm_up", "1"));
  }
  options.add("algorithm.download", download_,
              Names<Download>{{"full", Download::Full}, {"binary", Download::Binary}},
              "what clients receive: the model, or its last change with one bit a weight");
  declare_weighting(options, weighting_);
  options.add_check([this](const OptionSet& given) {
    given.refuse_unless_default("train.buffers",
                                "algorithm.name = fedbat, whose messages hold all of a model");
    if (least_step_ <= most_step_) return;
    const Level least = given.origin("algorithm.least_step").level;
    if (least >= given.origin("algorithm.most_step").level) {
      given.refuse("algorithm.least_step",
                   concat("algorithm.most_step = ", most_step_, ", which is less"));
    }
    given.refuse("algorithm.most_step",
                 concat("algorithm.least_step = ", least_step_, ", which is more"));
  });
}

void FedBAT::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  message_ = {at::zeros_like(global_.values), global_.layout};
  seed_ = setup.seed();
  binary_ = BinaryUpdate(global_.layout);
  signs_ = make_sign_codec(binary_.tensors());
  message_bytes_ = signs_->encoded_bytes(message_.values).front();
  of_models_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), global_.layout);
  StepRule of_sizes = setup.training().step_rule();
  of_sizes.weight_decay = 0;
  of_sizes.clip_norm = 0;
  of_sizes_ = std::make_unique<RowOptimizer>(of_sizes, layout_of_sizes(binary_.count()));
  if (download_ == Download::Binary) catch_up_ = CatchUp(setup);
}

void FedBAT::round(Round& round) {
  Mean mean = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = receive(block, round.number());  // [C, P]  W
    mean.add(block.weights(weighting_), train(block, start, round.number()));
  });
  const Rows update = mean.reduce();  // sum_i p_i S(m_i; alpha_i)
  global_ += message_;
  message_ = download_ == Download::Binary ? quantised(update, round.number()) : update;
}

Rows FedBAT::receive(Block& block, std::int64_t round) {
  if (download_ == Download::Full) return block.download(global_ + message_);
  catch_up_.note(block, round, message_bytes_, static_cast<std::int64_t>(global_.values.nbytes()));
  return global_ + block.download(message_, *signs_);
}

Rows FedBAT::train(Block& block, const Rows& start, std::int64_t round) {
  if (warm_up_ == 1) return block.upload(block.train(start) - start);
  const Rows local = start.clone();  // [C, P]  W + m
  StepSizes sizes = step_sizes_of(block, round);
  of_models_->reset(local.values);
  of_sizes_->reset(sizes.a);
  block.each_step(Steps::Any, [&](LocalStep& step) { take_step(step, start, local, sizes); });
  const Rows update = local - start;
  const Rows of_trained = update.narrow(0, sizes.trained());
  const Binarised at_the_end = binarise(binary_.weights().of(of_trained), 0, sizes,
                                        [&](std::size_t c) { return sizes.counts[c]; });
  binary_.weights().put_(of_trained, at_the_end.b);
  return block.upload(update, *signs_);
}

FedBAT::StepSizes FedBAT::step_sizes_of(Block& block, std::int64_t round) const {
  StepSizes sizes;
  sizes.clients = block.clients();
  sizes.round = round;
  sizes.counts = block.local_steps();
  for (const std::int64_t count : sizes.counts) {
    sizes.warm_up.push_back(
        static_cast<std::int64_t>(std::floor(warm_up_ * static_cast<double>(count))));
  }
  sizes.alpha_0 = at::full({block.count(), binary_.count()},
                           std::clamp(kFirstStep, least_step_, most_step_), at::kDouble);
  sizes.a = at::zeros_like(sizes.alpha_0);
  sizes.gradient = at::zeros_like(sizes.alpha_0);
  return sizes;
}

void FedBAT::take_step(LocalStep& step, const Rows& start, const Rows& local, StepSizes& sizes) {
  const std::int64_t active = step.active();
  const std::int64_t first = sizes.in_warm_up(step.number());
  const std::int64_t count = active - first;
  const bool binary = count > 0;
  const RowPart& weights = binary_.weights();
  const Rows models = binary ? local.clone() : local;  // [C, P]  W + S(m; alpha), or W + m
  Binarised s;
  if (binary) {
    const Rows frozen = weights.of(start.narrow(first, count));
    const Rows m = weights.of(local.narrow(first, count)) - frozen;
    start_alpha(m, first, step.number(), sizes);
    s = binarise(m, first, sizes, [&](std::size_t) { return step.number(); });
    weights.put_(models.narrow(first, count), frozen + s.b);
  }
  const Rows gradients{step.gradient(models), models.layout};
  if (binary) {
    copy_columns_(step.active(local), step.active(models), Tag::Buffer);
    pull_back_(gradients.narrow(first, count), s, first, sizes);
    step.each_rate([&](std::int64_t from, std::int64_t clients, double rate) {
      const std::int64_t begin = std::max(from, first);
      const std::int64_t end = from + clients;
      if (begin < end) of_sizes_->step_(sizes.a, sizes.gradient, begin, end - begin, rate);
    });
  }
  step.step_(local.values, gradients.values, *of_models_);
}

void FedBAT::pull_back_(const Rows& gradients, const Binarised& s, std::int64_t first,
                        StepSizes& sizes) {
  const std::int64_t count = gradients.count();
  const Rows of_updates = binary_.weights().of(gradients);
  const Tensor of_alpha = binary_.pull_back_(of_updates, s.m, s.b, s.alpha);
  binary_.weights().put_(gradients, of_updates);
  // d alpha / d a = rho alpha, and 0 beyond the bounds
  const Tensor alpha = alpha_of(sizes).narrow(0, first, count);
  sizes.gradient.narrow(0, first, count)
      .copy_(of_alpha * step_rate_ * alpha * alpha.ge(least_step_) * alpha.le(most_step_));
}

void FedBAT::start_alpha(const Rows& m, std::int64_t first, std::int64_t number,
                         StepSizes& sizes) const {
  if (number == 0) return;
  const Tensor means = binary_.mean_magnitudes(m);
  for (std::int64_t c = 0; c < m.count(); ++c) {
    if (sizes.warm_up[static_cast<std::size_t>(first + c)] != number) continue;
    sizes.alpha_0[first + c].copy_(means[c]);
  }
}

Tensor FedBAT::alpha_of(const StepSizes& sizes) const {
  // Not at::exp(), which rounds by where a number stands.
  const Tensor alpha = sizes.alpha_0.clone();
  for (std::int64_t i = 0; i < alpha.numel(); ++i) {
    alpha.data_ptr<double>()[i] *= std::exp(step_rate_ * sizes.a.const_data_ptr<double>()[i]);
  }
  return alpha;
}

FedBAT::Binarised FedBAT::binarise(const Rows& m, std::int64_t first, const StepSizes& sizes,
                                   const std::function<std::int64_t(std::size_t c)>& epoch) const {
  Binarised result{.m = m, .b = {}, .alpha = {}};
  result.alpha = alpha_of(sizes).narrow(0, first, m.count()).clamp(least_step_, most_step_);
  std::vector<DrawKey> keys;
  for (auto c = static_cast<std::size_t>(first); keys.size() < static_cast<std::size_t>(m.count());
       ++c) {
    keys.push_back({.seed = seed_,
                    .purpose = Purpose::Binarise,
                    .pass = kOfClients,
                    .epoch = static_cast<std::uint64_t>(epoch(c)),
                    .client = static_cast<std::uint64_t>(sizes.clients[c]),
                    .round = static_cast<std::uint64_t>(sizes.round)});
  }
  result.b = binary_.binarise(m, result.alpha, keys);
  return result;
}

Rows FedBAT::quantised(const Rows& update, std::int64_t round) const {
  Rows message = update.clone();
  const Rows m = binary_.weights().of(update);
  const DrawKey key{.seed = seed_,
                    .purpose = Purpose::Binarise,
                    .pass = kOfServer,
                    .round = static_cast<std::uint64_t>(round)};
  const std::array<DrawKey, 1> keys{key};
  binary_.weights().put_(message, binary_.binarise(m, binary_.mean_magnitudes(m), keys));
  return message;
}

void FedBAT::evaluate(Evaluation& evaluation) { evaluation.global(global_ + message_); }

void FedBAT::visit_state(StateVisitor& state) {
  state.rows("global", global_);
  state.rows("message", message_);
}

}  // namespace fedhpc
