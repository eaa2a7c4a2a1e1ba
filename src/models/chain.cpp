#include "fedhpc/models/chain.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <ATen/ops/empty.h>

namespace fedhpc {

namespace {

std::vector<Tensor> narrow_all(const std::vector<Tensor>& whole, std::int64_t first,
                               std::int64_t count, std::int64_t batch) {
  std::vector<Tensor> views;
  views.reserve(whole.size());
  for (const Tensor& tensor : whole) {
    views.push_back(tensor.defined() ? tensor.narrow(0, first, count).narrow(1, 0, batch) : tensor);
  }
  return views;
}

/// Adds the memory below `tensors` that `seen` does not hold yet.
std::int64_t count_bytes(const std::vector<Tensor>& tensors, std::set<const void*>& seen) {
  std::int64_t total = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    total += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return total;
}

std::int64_t count_bytes(const Activations& activations, std::set<const void*>& seen) {
  std::int64_t total =
      count_bytes(activations.values, seen) + count_bytes(activations.gradients, seen);
  for (const Saved& saved : activations.saved) {
    total += count_bytes(saved.per_client, seen) + count_bytes(saved.per_sample, seen);
    for (const Activations& inner : saved.chains) total += count_bytes(inner, seen);
  }
  return total;
}

/// Two buffers that take turns: only a layer's input and output are needed at a time, and reused
/// memory is in the cache.
class Alternating {
 public:
  Alternating(std::int64_t clients, std::int64_t batch, std::int64_t widest,
              const at::TensorOptions& options)
      : clients_(clients), batch_(batch), widest_(widest), options_(options) {}

  Tensor next(std::int64_t width) {
    turn_ = 1 - turn_;
    Tensor& buffer = buffers_[turn_];
    if (!buffer.defined()) {
      buffer = at::empty({clients_ * batch_ * widest_}, options_);
    }
    return buffer.narrow(0, 0, clients_ * batch_ * width).view({clients_, batch_, width});
  }

 private:
  std::int64_t clients_;
  std::int64_t batch_;
  std::int64_t widest_;
  at::TensorOptions options_;
  std::array<Tensor, 2> buffers_;
  std::size_t turn_ = 0;
};

}  // namespace

Saved Saved::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  Saved part;
  for (const Tensor& tensor : per_client) part.per_client.push_back(tensor.narrow(0, first, count));
  part.shared = shared;
  part.per_sample = narrow_all(per_sample, first, count, batch);
  for (const Activations& inner : chains) part.chains.push_back(inner.narrow(first, count, batch));
  return part;
}

Activations Activations::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  Activations part{.values = narrow_all(values, first, count, batch),
                   .gradients = narrow_all(gradients, first, count, batch),
                   .saved = {},
                   .use = use,
                   .arithmetic = arithmetic,
                   .convolutions = convolutions};
  part.saved.reserve(saved.size());
  for (const Saved& one : saved) part.saved.push_back(one.narrow(first, count, batch));
  return part;
}

std::int64_t Activations::bytes() const {
  std::set<const void*> seen;
  return count_bytes(*this, seen);
}

void Chain::add(std::unique_ptr<Layer> layer) {
  widths_.push_back(layer->output_features(widths_.back()));
  layers_.push_back(std::move(layer));
}

void Chain::declare(Layout& layout) {
  tags_.assign(layers_.size(), {});
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const std::size_t before = layout.fields().size();
    layers_[l]->declare(layout);
    for (std::size_t f = before; f < layout.fields().size(); ++f) {
      tags_[l].push_back(layout.fields()[f].tags);
    }
  }
}

std::size_t Chain::first_layer_with(const Columns& columns) const {
  if (columns.all()) return 0;
  const auto found = std::find_if(tags_.begin(), tags_.end(), [&](const std::vector<Tag>& tags) {
    return std::any_of(tags.begin(), tags.end(),
                       [&](Tag tag) { return has(tag, Tag::Trainable) && columns.hold(tag); });
  });
  return static_cast<std::size_t>(found - tags_.begin());
}

double Chain::forward_flops() const {
  double flops = 0;
  for (const auto& layer : layers_) flops += layer->forward_flops();
  return flops;
}

Activations Chain::make_activations(std::int64_t clients, std::int64_t batch,
                                    const at::TensorOptions& options, Use use, Ends ends) const {
  const std::size_t last = layers_.size();
  require(
      ends == Ends::Own || empty() || (!layers_.front()->in_place() && !layers_.back()->in_place()),
      "a layer that works in place is not at the end of an inner chain");
  const auto borrowed = [&](std::size_t l) {
    return ends == Ends::Borrowed && (l == 0 || l == last);
  };
  const std::int64_t widest = *std::max_element(widths_.begin(), widths_.end());
  Alternating turns(clients, batch, widest, options);
  const auto fresh = [&](std::size_t l) {
    return l > 0 && use == Use::Evaluation ? turns.next(widths_[l])
                                           : at::empty({clients, batch, widths_[l]}, options);
  };
  Activations activations;
  activations.use = use;
  activations.gradients.resize(last + 1);
  activations.values.push_back(borrowed(0) ? Tensor() : fresh(0));
  for (std::size_t l = 1; l <= last; ++l) {
    const Layer& layer = *layers_[l - 1];
    activations.values.push_back(borrowed(l)        ? Tensor()
                                 : layer.in_place() ? activations.values.back()
                                                    : fresh(l));
    activations.saved.push_back(layer.make_saved(clients, batch, options, use));
  }
  if (use == Use::Evaluation) return activations;
  for (std::size_t l = last; l > 0; --l) {
    if (borrowed(l)) continue;
    const bool shared = l < last && layers_[l]->in_place();
    activations.gradients[l] = shared ? activations.gradients[l + 1] : turns.next(widths_[l]);
  }
  return activations;
}

namespace {

Pass pass_of(std::size_t layer, const Tensor& weights, const Activations& activations) {
  return {weights, activations.saved[layer], activations.use, activations.arithmetic,
          activations.convolutions};
}

}  // namespace

void Chain::forward(const Tensor& weights, const Activations& activations) const {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l]->forward(pass_of(l, weights, activations), activations.values[l],
                        activations.values[l + 1]);
  }
}

void Chain::backward(const Tensor& weights, const Activations& activations,
                     const GradientSink& sink, std::size_t top) const {
  const bool whole = activations.gradients.front().defined();
  const std::size_t lowest = whole ? 0 : first_layer_with(sink.columns);
  for (std::size_t l = top; l-- > lowest;) {
    layers_[l]->backward(pass_of(l, weights, activations), activations.values[l],
                         activations.values[l + 1], activations.gradients[l + 1],
                         l > lowest || whole ? activations.gradients[l] : Tensor(), sink);
  }
}

}  // namespace fedhpc
