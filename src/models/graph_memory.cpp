#include <algorithm>
#include <set>

#include <ATen/ops/empty.h>

#include "fedhpc/models/graph.hpp"

namespace fedhpc {

/// Buffers for values of which some are alive at a time. First all places are taken and given back
/// in the order of the work, then the memory is made.
class Graph::Buffers {
 public:
  /// `channels` of every node, see Graph::by_channels.
  Buffers(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
          std::vector<std::int64_t> channels)
      : clients_(clients), batch_(batch), options_(options), channels_(std::move(channels)) {}

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

  Tensor fresh(std::size_t node, std::int64_t width) const {
    return shaped(at::empty({clients_ * batch_ * width}, options_), node, width);
  }
  /// The memory of all buffers that have been taken.
  void make() {
    for (const std::int64_t size : sizes_) {
      memory_.push_back(at::empty({clients_ * batch_ * size}, options_));
    }
  }
  Tensor view(std::size_t buffer, std::size_t node, std::int64_t width) const {
    return shaped(memory_[buffer].narrow(0, 0, clients_ * batch_ * width), node, width);
  }

 private:
  /// Memory as the values of a node.
  Tensor shaped(const Tensor& memory, std::size_t node, std::int64_t width) const {
    const std::int64_t channels = channels_[node];
    if (channels == 0) return memory.view({clients_, batch_, width});
    return memory.view({clients_, channels, batch_, width / channels}).transpose(1, 2);
  }

  std::int64_t clients_;
  std::int64_t batch_;
  at::TensorOptions options_;
  std::vector<std::int64_t> channels_;
  std::vector<std::int64_t> sizes_;  // values per sample
  std::vector<int> users_;
  std::vector<Tensor> memory_;
};

std::vector<std::int64_t> Graph::by_channels(std::size_t kept) const {
  std::vector<std::int64_t> channels(nodes_.size(), 0);
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    const Layer& layer = *nodes_[n].layer;
    channels[n] =
        layer.is_elementwise() ? channels[nodes_[n].inputs.front()] : layer.by_channels().given;
  }
  channels[kept] = channels[last()] = 0;
  for (bool settled = false; !settled;) {
    settled = true;
    const auto agree = [&](std::size_t node, bool possible) {
      if (possible || channels[node] == 0) return;
      channels[node] = 0;
      settled = false;
    };
    for (std::size_t n = 1; n < nodes_.size(); ++n) {
      const Layer& layer = *nodes_[n].layer;
      const bool alike = layer.is_elementwise();
      for (const std::size_t input : nodes_[n].inputs) {
        agree(input, channels[input] == (alike ? channels[n] : layer.by_channels().taken));
        if (alike) agree(n, channels[n] == channels[input]);
      }
    }
  }
  return channels;
}

std::vector<Tensor> Graph::make_values(Buffers& buffers, Use use, std::size_t kept) const {
  std::vector<Tensor> values{buffers.fresh(0, width_of(0))};
  if (use == Use::Training) {
    for (std::size_t n = 1; n < nodes_.size(); ++n) {
      values.push_back(nodes_[n].in_place ? values[nodes_[n].inputs.front()]
                                          : buffers.fresh(n, width_of(n)));
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
    values.push_back(buffers.view(places[n], n, width_of(n)));
  }
  return values;
}

void Graph::make_gradients(Buffers& buffers, Activations& activations) const {
  std::vector<std::size_t> places(nodes_.size());
  std::vector<std::pair<std::size_t, std::size_t>> parts;  // every Added gradient: buffer and node
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
        parts.emplace_back(for_this_step.back(), input);
      }
    }
    for (const std::size_t buffer : for_this_step) buffers.give_back(buffer);
    if (!goes_on) buffers.give_back(places[n]);
  }
  buffers.make();
  activations.gradients.resize(nodes_.size());
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    activations.gradients[n] = buffers.view(places[n], n, width_of(n));
  }
  for (const auto& [buffer, node] : parts) {
    activations.parts.push_back(buffers.view(buffer, node, width_of(node)));
  }
}

Activations Graph::make_activations(std::int64_t clients, std::int64_t batch,
                                    const at::TensorOptions& options, Use use,
                                    std::size_t kept) const {
  Activations activations;
  activations.use = use;
  const std::vector<std::int64_t> channels =
      options.device().is_cuda() ? by_channels(kept) : std::vector<std::int64_t>(nodes_.size(), 0);
  Buffers of_values(clients, batch, options, channels);
  activations.values = make_values(of_values, use, kept);
  activations.gradients.resize(nodes_.size());
  for (const Node& node : nodes_) {
    activations.saved.push_back(
        node.layer == nullptr ? Saved{} : node.layer->make_saved(clients, batch, options, use));
  }
  if (use == Use::Evaluation) return activations;
  Buffers of_gradients(clients, batch, options, channels);
  make_gradients(of_gradients, activations);
  return activations;
}

}  // namespace fedhpc
