#include "fedhpc/algorithms/ef21p.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/weighting.hpp"

namespace fedhpc {

namespace {

/// The same columns, those of norms among those that have no gradient: they are sent in full.
LayoutPtr without_norm(const Layout& layout) {
  auto result = std::make_shared<Layout>();
  for (const Field& field : layout.fields()) {
    result->add(field.name, field.shape, field.fan_in,
                has(field.tags, Tag::Norm) ? Tag::Buffer : field.tags, field.initial);
  }
  return result;
}

}  // namespace

void EF21P::declare(OptionSet& options) {
  options
      .add("algorithm.fraction", fraction_, above_up_to(0.0, 1.0),
           "K / d: share of the columns that travels in each direction; those of norms all do")
      .acts(where("algorithm.columns", {"0"}));
  options.add("algorithm.columns", columns_wanted_, count_from(0),
              "K, columns that travel in each direction; 0: as algorithm.fraction says");
  options
      .add("algorithm.upload", upload_,
           Names<Upload>{
               {"rand_k", Upload::RandK}, {"top_k", Upload::TopK}, {"dense", Upload::Dense}},
           "which columns of an update a client sends: K at random, the K largest, or all")
      .acts(unless("algorithm.fraction", "1"));
  options
      .add("algorithm.scale", scale_,
           "whether what is sent at random is multiplied by d / K, which makes it right in "
           "expectation")
      .acts(both(unless("algorithm.fraction", "1"), where("algorithm.upload", {"rand_k"})));
  options.add("algorithm.server_lr", server_lr_, at_least(0.0),
              "factor of the mean of the compressed updates, but for norms; 1: the mean");
  declare_weighting(options, weighting_);
  options.add_check([](const OptionSet& given) {
    given.refuse_unless_default("train.buffers",
                                "algorithm.name = ef21p, whose messages hold all of a model");
  });
}

void EF21P::initialise(const Setup& setup) {
  exact_ = setup.initial_model();
  shared_ = setup.initial_model();
  message_ = {at::zeros_like(exact_.values), exact_.layout};
  compressed_ = without_norm(*exact_.layout);
  const std::int64_t k = columns_sent();
  const std::int64_t d = compressed_->count(Tag::Trainable);
  if (k == d) upload_ = Upload::Dense;
  columns_.emplace(setup.seed(), static_cast<double>(k) / static_cast<double>(d), compressed_);
  top_k_ = make_largest_codec(compressed_->ranges(Tag::Trainable), k);
  message_bytes_ = top_k_->encoded_bytes(message_.values).front();
  catch_up_ = CatchUp(setup);
}

std::int64_t EF21P::columns_sent() const {
  const std::int64_t d = compressed_->count(Tag::Trainable);
  if (columns_wanted_ > d) {
    throw ConfigError(concat("algorithm.columns = ", columns_wanted_, ", but the model has ", d,
                             " columns that are compressed"));
  }
  if (columns_wanted_ > 0) return columns_wanted_;
  const double wanted = std::floor(fraction_ * static_cast<double>(d) + 0.5);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
}

void EF21P::round(Round& round) {
  Mean mean = round.mean();
  round.each_block([&](Block& block) {
    const Rows start = receive(block, round.number());  // [C, P]  w^t
    const Rows trained = block.train(start);            // [C, P]  w_i
    mean.add(block.weights(weighting_), send(block, trained - start));
  });
  const Rows update = mean.reduce();  // sum_i p_i C_i(Delta_i)
  scale_columns_({update.values, compressed_}, server_lr_, Tag::Trainable);
  shared_ += message_;                   // w^t
  exact_ += update;                      // x^{t+1} <- x^t + gamma sum_i p_i C_i(Delta_i)
  message_ = largest(exact_ - shared_);  // TopK(x^{t+1} - w^t)
}

Rows EF21P::receive(Block& block, std::int64_t round) {
  catch_up_.note(block, round, message_bytes_, static_cast<std::int64_t>(shared_.values.nbytes()));
  return shared_ + block.download(message_, *top_k_);
}

Rows EF21P::send(Block& block, const Rows& updates) const {
  if (upload_ == Upload::Dense) return block.upload(updates);
  if (upload_ == Upload::TopK) return block.upload(updates, *top_k_);
  const Tensor sent = block.send(Direction::Up, *columns_);  // [C, P]
  const Rows arrives{updates.values.mul(sent), updates.layout};
  if (scale_) {
    scale_columns_({arrives.values, compressed_}, columns_->inverse_fraction(), Tag::Trainable);
  }
  return arrives;
}

Rows EF21P::largest(const Rows& row) const {
  Rows result = row.clone();
  top_k_->transmit_(result.values);
  return result;
}

void EF21P::evaluate(Evaluation& evaluation) { evaluation.global(shared_ + message_); }

void EF21P::visit_state(StateVisitor& state) {
  state.rows("exact", exact_);
  state.rows("shared", shared_);
  state.rows("message", message_);
}

}  // namespace fedhpc
