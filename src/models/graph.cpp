#include "fedhpc/models/graph.hpp"

#include <algorithm>
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

}  // namespace

LayerDraws LayerDraws::of_clients(std::int64_t first, std::int64_t count) const {
  LayerDraws part = *this;
  if (!clients.empty()) {
    part.clients =
        clients.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
  return part;
}

DrawKey LayerDraws::key(std::int64_t c, std::int64_t layer) const {
  const auto client = static_cast<std::uint64_t>(clients[static_cast<std::size_t>(c)]);
  return {.seed = seed,
          .purpose = Purpose::Layers,
          .pass = static_cast<std::uint64_t>(pass),
          .epoch = static_cast<std::uint64_t>(step),
          .client = client | static_cast<std::uint64_t>(layer) << 32 |
                    static_cast<std::uint64_t>(call) << 48,
          .round = static_cast<std::uint64_t>(round)};
}

Saved Saved::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  Saved part;
  for (const Tensor& tensor : per_client) part.per_client.push_back(tensor.narrow(0, first, count));
  part.shared = shared;
  if (!own.empty()) part.own.assign(own.begin() + first, own.begin() + first + count);
  part.per_sample = narrow_all(per_sample, first, count, batch);
  return part;
}

Activations Activations::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  Activations part{.values = narrow_all(values, first, count, batch),
                   .gradients = narrow_all(gradients, first, count, batch),
                   .parts = narrow_all(parts, first, count, batch),
                   .saved = {},
                   .use = use,
                   .arithmetic = arithmetic,
                   .convolutions = convolutions,
                   .draws = draws.of_clients(first, count)};
  part.saved.reserve(saved.size());
  for (const Saved& one : saved) part.saved.push_back(one.narrow(first, count, batch));
  return part;
}

std::int64_t Activations::bytes() const {
  std::set<const void*> seen;
  std::int64_t total =
      count_bytes(values, seen) + count_bytes(gradients, seen) + count_bytes(parts, seen);
  for (const Saved& one : saved) {
    total += count_bytes(one.per_client, seen) + count_bytes(one.per_sample, seen);
  }
  return total;
}

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

Graph::Graph(std::int64_t features) {
  nodes_.emplace_back();
  nodes_.back().width = features;
}

std::size_t Graph::add(std::unique_ptr<Layer> layer, std::vector<std::size_t> inputs) {
  Node node{.layer = std::move(layer), .inputs = std::move(inputs)};
  node.width = node.layer->output_features();
  for (const std::size_t input : node.inputs) {
    require(input < nodes_.size(), "a layer comes after its inputs");
    nodes_[input].consumers.push_back(nodes_.size());
  }
  nodes_.push_back(std::move(node));
  return last();
}

bool Graph::may_share(const Node& node) const {
  if (node.inputs.empty() || !node.layer->in_place()) return false;
  const Node& input = nodes_[node.inputs.front()];
  return input.layer != nullptr && input.consumers.size() == 1 && !input.layer->reads_output();
}

void Graph::declare(Layout& layout) {
  for (Node& node : nodes_) {
    require(&node == &nodes_.back() || !node.consumers.empty(), "every value is used");
    if (node.layer == nullptr) continue;
    node.in_place = may_share(node);
    require(!node.in_place || node.width == nodes_[node.inputs.front()].width,
            "a layer in place keeps the number of values");
    const std::size_t before = layout.fields().size();
    const std::int64_t columns = layout.size();
    node.layer->declare(layout);
    node.columns = layout.size() - columns;
    for (std::size_t f = before; f < layout.fields().size(); ++f) {
      node.tags.push_back(layout.fields()[f].tags);
    }
  }
  plan_gradients();
}

void Graph::plan_gradients() {
  std::vector<bool> begun(nodes_.size(), false);
  std::size_t parts = 0;
  for (std::size_t n = last(); n > 0; --n) {
    Node& node = nodes_[n];
    node.ways.clear();
    node.parts.assign(node.inputs.size(), 0);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t input = node.inputs[k];
      node.ways.push_back(input == 0 ? Way::Nowhere : begun[input] ? Way::Added : Way::Written);
      begun[input] = true;
      if (node.ways.back() == Way::Added && !node.layer->is_sum()) node.parts[k] = parts++;
    }
    if (node.layer->is_sum()) share_gradient(n);
  }
}

std::size_t Graph::first_change(std::size_t node, std::size_t from) const {
  // A layer in place, and a sum that shares on, change it at their own step.
  const Layer& layer = *nodes_[node].layer;
  std::size_t first = nodes_[node].in_place || layer.is_sum() ? node : 0;
  for (const std::size_t consumer : nodes_[node].consumers) {
    if (consumer < from) first = std::max(first, consumer);
  }
  return first;
}

void Graph::share_gradient(std::size_t sum) {
  Node& node = nodes_[sum];
  std::vector<std::size_t> sharing;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const std::size_t input = node.inputs[k];
    if (node.ways[k] != Way::Written) continue;
    if (std::count(node.inputs.begin(), node.inputs.end(), input) > 1) continue;
    const std::size_t change = first_change(input, sum);
    const bool alone = std::all_of(sharing.begin(), sharing.end(), [&](std::size_t other) {
      return other >= change && input >= first_change(other, sum);
    });
    if (!alone) continue;
    node.ways[k] = Way::Shared;
    sharing.push_back(input);
  }
}

double Graph::forward_flops() const {
  double flops = 0;
  for (const Node& node : nodes_) flops += node.layer == nullptr ? 0 : node.layer->forward_flops();
  return flops;
}

bool Graph::draws() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const Node& node) { return node.layer != nullptr && node.layer->draws(); });
}

std::size_t Graph::first_node_with(const Columns& columns) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return std::any_of(node.tags.begin(), node.tags.end(),
                       [&](Tag tag) { return has(tag, Tag::Trainable) && columns.hold(tag); });
  });
  return static_cast<std::size_t>(found - nodes_.begin());
}

bool Graph::is_cut(std::size_t node) const {
  if (node == 0 || node >= nodes_.size() || nodes_[node].inputs.size() != 1) return false;
  const std::size_t below = nodes_[node].inputs.front();
  for (std::size_t n = node; n < nodes_.size(); ++n) {
    for (const std::size_t input : nodes_[n].inputs) {
      if (input < node && (input != below || n != node)) return false;
    }
  }
  return true;
}

std::vector<bool> Graph::needed_for(const Columns& columns) const {
  std::vector<bool> needed(nodes_.size(), false);
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    needed[n] =
        std::any_of(node.tags.begin(), node.tags.end(),
                    [&](Tag tag) { return has(tag, Tag::Trainable) && columns.hold(tag); }) ||
        std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](std::size_t input) { return needed[input]; });
  }
  return needed;
}

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
      } else if (node.ways[k] == Way::Written && node.in_place && k == 0 && !node.layer->is_sum()) {
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

namespace {

Pass pass_of(std::size_t node, const Tensor& weights, const Activations& activations) {
  return {weights,
          activations.saved[node],
          activations.use,
          activations.arithmetic,
          activations.convolutions,
          activations.draws};
}

/// The stacks of these nodes, side by side.
class Gathered {
 public:
  Gathered(const std::vector<Tensor>& all, const std::vector<std::size_t>& nodes) {
    if (nodes.size() == 1) {
      stacks_ = {&all[nodes.front()], 1};
      return;
    }
    own_.reserve(nodes.size());
    for (const std::size_t node : nodes) own_.push_back(all[node]);
    stacks_ = own_;
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  operator Stacks() const { return stacks_; }  // NOLINT

 private:
  std::vector<Tensor> own_;
  Stacks stacks_;
};

}  // namespace

void Graph::forward(const Tensor& weights, const Activations& activations) const {
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    nodes_[n].layer->forward(pass_of(n, weights, activations),
                             Gathered(activations.values, nodes_[n].inputs), activations.values[n]);
  }
}

void Graph::hand_on(std::size_t n, const Activations& activations,
                    const std::vector<bool>& needed) const {
  const Node& node = nodes_[n];
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const Tensor& gradient = activations.gradients[node.inputs[k]];
    if (!needed[node.inputs[k]]) continue;
    if (node.ways[k] == Way::Written) gradient.copy_(activations.gradients[n]);
    if (node.ways[k] == Way::Added) gradient.add_(activations.gradients[n]);
  }
}

void Graph::backward(const Tensor& weights, const Activations& activations,
                     const GradientSink& sink, std::size_t top) const {
  const std::vector<bool> needed = needed_for(sink.columns);
  std::vector<Tensor> into;
  for (std::size_t n = top; n-- > 1;) {
    const Node& node = nodes_[n];
    if (!needed[n]) continue;
    if (node.layer->is_sum()) {
      hand_on(n, activations, needed);
      continue;
    }
    into.assign(node.inputs.size(), Tensor());
    for (std::size_t k = 0; k < into.size(); ++k) {
      if (!needed[node.inputs[k]]) continue;
      into[k] = node.ways[k] == Way::Added ? activations.parts[node.parts[k]]
                                           : activations.gradients[node.inputs[k]];
    }
    node.layer->backward(pass_of(n, weights, activations),
                         Gathered(activations.values, node.inputs), activations.values[n],
                         activations.gradients[n], into, sink);
    for (std::size_t k = 0; k < into.size(); ++k) {
      if (into[k].defined() && node.ways[k] == Way::Added) {
        activations.gradients[node.inputs[k]].add_(into[k]);
      }
    }
  }
}

}  // namespace fedhpc
