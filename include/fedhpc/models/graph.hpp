#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/models/layer.hpp"

namespace fedhpc {

/// Values and gradients of a graph for C clients and batches of up to B samples. Element n of each
/// is that of node n; node 0 is the input, the last one the output (logits). A layer that works in
/// place shares memory with its input. Gradients (in evaluation values, too) share buffers where
/// they are not alive at once. Images that lie by channels are [C, B, channels, places].
struct Activations {
  std::vector<Tensor> values;     // each [C, B, width]
  std::vector<Tensor> gradients;  // each [C, B, width]; undefined for the input and in evaluation
  std::vector<Tensor> parts;      // of gradients that have several, as they come
  std::vector<Saved> saved;       // of node n
  Use use = Use::Training;
  Arithmetic arithmetic{};
  ConvolutionTrials* convolutions = nullptr;  // of a device, the model's; null: none is tried
  LayerDraws draws{};                         // of the pass in hand

  const Tensor& input() const { return values.front(); }             // [C, B, D]
  const Tensor& logits() const { return values.back(); }             // [C, B, K]
  const Tensor& logit_gradient() const { return gradients.back(); }  // [C, B, K]
  /// Views clients [first, first + count) and the first `batch` samples of each.
  Activations narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const;
  std::int64_t bytes() const;
};

/// Runs layers in an order in which each comes after its inputs. A node is a layer with the numbers
/// of the nodes whose values it takes; node 0 is the input. The last node is the output.
class Graph {
 public:
  explicit Graph(std::int64_t features);

  /// Adds a layer on the values of these nodes, or on the last one's, and returns its number.
  std::size_t add(std::unique_ptr<Layer> layer, std::vector<std::size_t> inputs);
  std::size_t add(std::unique_ptr<Layer> layer) { return add(std::move(layer), {last()}); }
  std::size_t last() const { return nodes_.size() - 1; }
  std::int64_t input_features() const { return width_of(0); }
  std::int64_t output_features() const { return width_of(last()); }
  std::int64_t width_of(std::size_t node) const { return nodes_[node].width; }
  const std::vector<std::size_t>& inputs_of(std::size_t node) const { return nodes_[node].inputs; }
  const Layer& layer(std::size_t node) const { return *nodes_[node].layer; }
  std::int64_t columns_of(std::size_t node) const { return nodes_[node].columns; }

  /// Declares the layers' parameters, in order. No layer is added afterwards.
  void declare(Layout& layout);
  double forward_flops() const;
  bool draws() const;

  /// `options` gives number type and device. The values of node `kept` stay until the next pass, as
  /// the output's do. On a device images lie by channels wherever all layers around take them so;
  /// those of the input, of node `kept` and of the output never do.
  Activations make_activations(std::int64_t clients, std::int64_t batch,
                               const at::TensorOptions& options, Use use, std::size_t kept) const;
  void forward(const Tensor& weights, const Activations& activations) const;
  /// Goes down from the output to the nodes with a column in the sink, or before them.
  void backward(const Tensor& weights, const Activations& activations,
                const GradientSink& sink) const {
    backward(weights, activations, sink, nodes_.size());
  }
  /// Goes down from the node before `top` to node `bottom`. Precondition: is_cut() of both, but for
  /// the ends of the graph.
  void backward(const Tensor& weights, const Activations& activations, const GradientSink& sink,
                std::size_t top, std::size_t bottom = 1) const;
  /// The number of nodes, the input among them.
  std::size_t size() const { return nodes_.size(); }

  /// Returns the first node that has a trainable column of these; the number of nodes if none has.
  /// The graph must be declared.
  std::size_t first_node_with(const Columns& columns) const;
  /// True if the values of one node are all that this node and later ones take of earlier ones.
  bool is_cut(std::size_t node) const;

 private:
  /// How a layer's part of an input's gradient comes into it.
  enum class Way {
    Nowhere,  // the graph's input has no gradient
    Written,  // the first part: into the gradient's memory
    Shared,   // the first part, of a sum: the output's gradient is the memory
    Added     // a later part
  };
  struct Node {
    std::unique_ptr<Layer> layer;  // null for the input
    std::vector<std::size_t> inputs;
    std::int64_t width = 0;
    std::vector<std::size_t> consumers{};
    std::vector<Tag> tags{};   // of the layer's fields, once declared
    std::int64_t columns = 0;  // of all of them
    bool in_place = false;
    std::vector<Way> ways{};           // of the gradients of the inputs
    std::vector<std::size_t> parts{};  // number in Activations::parts of every Added one
  };
  class Buffers;

  /// The channels of every node whose images lie by channels on a device, else 0.
  std::vector<std::int64_t> by_channels(std::size_t kept) const;
  bool may_share(const Node& node) const;
  void plan_gradients();
  void share_gradient(std::size_t sum);
  /// Backward goes from node to node in falling order. After the sum `from` has shared its gradient
  /// with `node`, that memory changes first at the node returned.
  std::size_t first_change(std::size_t node, std::size_t from) const;
  std::vector<bool> needed_for(const Columns& columns) const;
  std::vector<Tensor> make_values(Buffers& buffers, Use use, std::size_t kept) const;
  void make_gradients(Buffers& buffers, Activations& activations) const;
  void hand_on(std::size_t n, const Activations& activations,
               const std::vector<bool>& needed) const;

  std::vector<Node> nodes_;
};

}  // namespace fedhpc
