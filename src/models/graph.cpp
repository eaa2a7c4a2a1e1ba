#include "fedhpc/models/graph.hpp"

#include <algorithm>

namespace fedhpc {

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
    layout.begin_layer();
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
  // A layer in place, a sum that shares on, and one that says so, change it at their own step.
  const Layer& layer = *nodes_[node].layer;
  const bool changes = nodes_[node].in_place || layer.is_sum() || layer.changes_output_gradient();
  std::size_t first = changes ? node : 0;
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
                     const GradientSink& sink, std::size_t top, std::size_t bottom) const {
  const std::vector<bool> needed = needed_for(sink.columns);
  std::vector<Tensor> into;
  for (std::size_t n = top; n-- > bottom;) {
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
