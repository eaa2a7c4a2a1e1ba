#include "fedhpc/algorithms/moon.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

/// row / ||row||; a row of zeros stays.
Rows directions(const Rows& rows) {
  const Rows scaled = rows.clone();
  scale_(scaled, inverse_lengths(rows));
  return scaled;
}

/// The samples of a stack [n, B, E] one below the other: [n B, E].
Rows samples_of(const Tensor& stack, const LayoutPtr& layout) {
  return {stack.reshape({-1, stack.size(2)}), layout};
}

}  // namespace

void MOON::declare(OptionSet& options) {
  options.add(
      "algorithm.mu", mu_, at_least(0.0),
      "weight of the contrastive term beside the loss, which moves what the head sees: nothing of "
      "softmax regression; 0 is FedAvg");
  options
      .add("algorithm.temperature", temperature_, above(0.0),
           "what similarities are divided by in the contrastive term (tau)")
      .acts(unless("algorithm.mu", "0"));
  averaging_.declare(options);
  server_.declare(options);
}

void MOON::initialise(const Setup& setup) {
  global_ = setup.initial_model();
  codec_ = averaging_.links.open(setup, global_);
  server_.start(global_);
  previous_ = &setup.store().rows("previous", global_);
  optimizer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), global_.layout);
}

void MOON::round(Round& round) {
  Mean update = round.mean();
  round.each_block([&](Block& block) {
    const Rows received = block.download(global_);                     // [C, P]  w^t
    const Rows previous = previous_->read(block.clients(), received);  // w_i^(t-1)
    const Rows local = client_update(block, received, previous);       // w_i^t
    block.keep(*previous_, local);
    block.keep_buffers(local);
    update.add(block.weights(averaging_.weighting), block.upload(local - received, *codec_));
  });
  server_.step_(global_, update.reduce());  // w^(t+1) <- w^t + sum_i p_i (w_i^t - w^t)
}

Rows MOON::client_update(Block& block, const Rows& received, const Rows& previous) {
  const Rows local = received.clone();
  optimizer_->reset(local.values);
  block.each_step(Steps::Alike, [&](LocalStep& step) {
    const Tensor of_global = step.embedding(received);    // [C, B, E]  z_glob
    const Tensor of_previous = step.embedding(previous);  // z_prev
    // w_i <- w_i - eta grad (cross-entropy + mu l_con)
    step.descend_(local, *optimizer_,
                  [&](const BatchRun& run, const Tensor& z, const Tensor& gradient) {
                    const auto of_run = [&](const Tensor& all) {
                      return all.narrow(0, run.first, run.count).narrow(1, 0, run.batch);
                    };
                    add_contrast(z, of_run(of_global), of_run(of_previous), gradient);
                  });
  });
  return local;
}

// With u = z / ||z||, apart = u_prev - u_glob and ahead = sim(z, z_prev) - sim(z, z_glob):
// l_con = log(1 + exp(ahead / tau)), and ahead = <u, apart> has the gradient
// (apart - ahead u) / ||z||. It is 0 to the last bit where the two models agree.
void MOON::add_contrast(const Tensor& z, const Tensor& of_global, const Tensor& of_previous,
                        const Tensor& gradient) const {
  auto layout = std::make_shared<Layout>();
  layout->add("embedding", {z.size(2)}, z.size(2), Tag::Trainable);
  const Rows local = samples_of(z, layout);  // [n B, E]
  const Rows u = directions(local);
  const Rows apart =
      directions(samples_of(of_previous, layout)) - directions(samples_of(of_global, layout));
  const RowNumbers ahead = inner_products(u, apart).ab;
  const double mean = mu_ / (temperature_ * static_cast<double>(z.size(1)));
  const RowNumbers slope = mean / (1 + exp(-1 / temperature_ * ahead)) * inverse_lengths(local);
  const Rows change{at::zeros_like(local.values), layout};
  add_columns_(change, slope, apart, Tag::Trainable);
  add_columns_(change, -1 * (slope * ahead), u, Tag::Trainable);
  gradient.add_(change.values.view_as(z));
}

void MOON::evaluate(Evaluation& evaluation) { evaluation.global(global_); }

}  // namespace fedhpc
