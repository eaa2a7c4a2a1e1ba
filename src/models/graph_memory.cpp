#include <algorithm>
#include <set>

#include <ATen/ops/empty.h>

#include "fedhpc/models/graph.hpp"

namespace fedhpc {

/// Buffers for values of which some are alive at a time. First all places are taken and given back
/// in the order of the work, then the memory is made.
class Graph::Buffers {
 public:
  Buffers(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options)
      : clients_(clients), batch_(batch), options_(options) {}

  /// Takes a buffer: the smallest free one that is wide enough, else the widest free one.
  std::size_t take(std::int64_t width) {
    std::size_t best = sizes_.size();
    for (std::size_t b = 0; b < sizes_.size(); ++b) {
      if (users_[b] > 0) continue;
      const bool fits = sizes_[b] >= width;
      if (best == sizes_.size() || (fits && (sizes_[best] < width || sizes_[b] < sizes_[best])) ||
          (!fits && sizes_[best] < width && sizes_[b] > sizes_[best])) {
        best = b;
      }
    }
    if (best == sizes_.size()) {
      sizes_.push_back(0);
      users_.push_back(0);
    }
    sizes_[best] = std::max(sizes_[best], width);
    users_[best] = 1;
    return best;
  }
  void share(std::size_t buffer) { ++users_[buffer]; }
  void give_back(std::size_t buffer) { --users_[buffer]; }

  Tensor fresh(std::int64_t width) const { return at::empty({clients_, batch_, width}, options_); }
  /// The memory of all buffers that have been taken.
  void make() {
    for (const std::int64_t size : sizes_) {
      memory_.push_back(at::empty({clients_ * batch_ * size}, options_));
    }
  }
  Tensor view(std::size_t buffer, std::int64_t width) const {
    return memory_[buffer].narrow(0, 0, clients_ * batch_ * width).view({clients_, batch_, width});
  }
  const at::TensorOptions& options() const { return options_; }
  std::int64_t clients() const { return clients_; }
  std::int64_t batch() const { return batch_; }

 private:
  std::int64_t clients_;
  std::int64_t batch_;
  at::TensorOptions options_;
  std::vector<std::int64_t> sizes_;  // values per sample
  std::vector<int> users_;
  std::vector<Tensor> memory_;
};

std::vector<Tensor> Graph::make_values(Buffers& buffers, Use use, std::size_t kept) const {
  std::vector<Tensor> values{buffers.fresh(width_of(0))};
  if (use == Use::Training) {
    for (std::size_t n = 1; n < nodes_.size(); ++n) {
      values.push_back(nodes_[n].in_place ? values[nodes_[n].inputs.front()]
                                          : buffers.fresh(width_of(n)));
    }
    return values;
  }
  std::vector<std::size_t> places(nodes_.size());
  const auto ends_at = [&](std::size_t input, std::size_t n) {
    const auto& consumers = nodes_[input].consumers;
    return input != 0 && input != kept && consumers.back() == n;
  };
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    places[n] = node.in_place ? places[node.inputs.front()] : buffers.take(node.width);
    std::set<std::size_t> inputs(node.inputs.begin(), node.inputs.end());
    if (node.in_place) inputs.erase(node.inputs.front());
    for (const std::size_t input : inputs) {
      if (ends_at(input, n)) buffers.give_back(places[input]);
    }
  }
  buffers.make();
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    values.push_back(buffers.view(places[n], width_of(n)));
  }
  return values;
}

void Graph::make_gradients(Buffers& buffers, Activations& activations) const {
  std::vector<std::size_t> places(nodes_.size());
  std::vector<std::pair<std::size_t, std::int64_t>> parts;  // of every Added gradient: its buffer
  places[last()] = buffers.take(width_of(last()));
  for (std::size_t n = last(); n > 0; --n) {
    const Node& node = nodes_[n];
    std::vector<std::size_t> for_this_step;
    bool goes_on = false;  // in the gradient of an input
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t input = node.inputs[k];
      if (node.ways[k] == Way::Shared) {
        places[input] = places[n];
        buffers.share(places[n]);
      } else if (node.ways[k] == Way::Written && k == 0 && node.in_place && !node.layer->is_sum()) {
        places[input] = places[n];
        goes_on = true;
      } else if (node.ways[k] == Way::Written) {
        places[input] = buffers.take(width_of(input));
      } else if (node.ways[k] == Way::Added && !node.layer->is_sum()) {
        for_this_step.push_back(buffers.take(width_of(input)));
        parts.emplace_back(for_this_step.back(), width_of(input));
      }
    }
    for (const std::size_t buffer : for_this_step) buffers.give_back(buffer);
    if (!goes_on) buffers.give_back(places[n]);
  }
  buffers.make();
  activations.gradients.resize(nodes_.size());
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    activations.gradients[n] = buffers.view(places[n], width_of(n));
  }
  for (const auto& [buffer, width] : parts) {
    activations.parts.push_back(buffers.view(buffer, width));
  }
}

Activations Graph::make_activations(std::int64_t clients, std::int64_t batch,
                                    const at::TensorOptions& options, Use use,
                                    std::size_t kept) const {
  Activations activations;
  activations.use = use;
  Buffers of_values(clients, batch, options);
  activations.values = make_values(of_values, use, kept);
  activations.gradients.resize(nodes_.size());
  for (const Node& node : nodes_) {
    activations.saved.push_back(
        node.layer == nullptr ? Saved{} : node.layer->make_saved(clients, batch, options, use));
  }
  if (use == Use::Evaluation) return activations;
  Buffers of_gradients(clients, batch, options);
  make_gradients(of_gradients, activations);
  return activations;
}

}  // namespace fedhpc
