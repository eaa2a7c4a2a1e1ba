#include <algorithm>
#include <set>

#include "fedhpc/models/description.hpp"

namespace fedhpc {

namespace {

/// Builds the layers of a description, line by line.
class Builder {
 public:
  Builder(const ModelDescription& description, const std::string& source)
      : description_(description), lines_(description.lines), source_(source) {}

  std::unique_ptr<Model> build() {
    check_lines();
    find_consumers();
    find_head();
    Graph graph(values_of(shapes_.front()));
    std::vector<LayerSummary> summary{{"input", lines_.front().name, shapes_.front()}};
    for (std::size_t l = 1; l < lines_.size(); ++l) {
      const std::size_t before = graph.last();
      Shape shape = make(graph, l);
      const std::size_t node = graph.last() > before ? graph.last() : 0;
      summary.push_back({lines_[l].op, lines_[l].name, std::move(shape), node});
    }
    check(nodes_.back() == graph.last() && graph.last() > 0, lines_.size() - 1,
          "nothing is computed for the output");
    return std::make_unique<Model>(std::move(graph), std::move(summary));
  }

 private:
  void check(bool holds, std::size_t line, const std::string& what) const {
    if (holds) return;
    LineReader(lines_[line], {}, {.source = source_, .line = line}).fail(what);
  }

  void check_lines() {
    if (lines_.empty()) throw DataError(concat(source_, " holds no layers"));
    std::set<std::string> names;
    for (std::size_t l = 0; l < lines_.size(); ++l) {
      const LayerLine& line = lines_[l];
      check((line.op == "input") == (l == 0), l, "the input is the first layer, and no other");
      for (const std::size_t input : line.inputs) {
        check(input < l, l, concat("its input ", input, " does not come before it"));
      }
      for (const std::string& name : line.parameters) {
        check(!name.empty() && name.find('/') == std::string::npos, l,
              concat("'", name, "' is no name of a parameter"));
        check(
            names.insert(name).second, l,
            concat("the parameter '", name, "' is used in two places; one place each is allowed"));
      }
      check(line.constant.empty() || description_.constants.contains(line.constant), l,
            concat("there is no constant '", line.constant, "'"));
    }
    const LineReader input(lines_.front(), {}, {.source = source_});
    shapes_.push_back(input.shape("shape"));
    input.check_keys();
    nodes_.push_back(0);
  }

  void find_consumers() {
    consumers_.resize(lines_.size());
    for (std::size_t l = 1; l < lines_.size(); ++l) {
      for (const std::size_t input : lines_[l].inputs) consumers_[input].push_back(l);
      const bool needs_none = lines_[l].op == "parameter" || lines_[l].op == "constant";
      check(needs_none || !lines_[l].inputs.empty(), l,
            "the key inputs is missing; it has the numbers of the lines whose values it takes");
    }
    for (std::size_t l = 0; l + 1 < lines_.size(); ++l) {
      check(!consumers_[l].empty(), l, "nobody uses its value; only the last layer is the output");
    }
  }

  void find_head() {
    for (std::size_t l = 0; l < lines_.size(); ++l) {
      if (lines_[l].op == "linear" || lines_[l].op == "convolution") head_ = l;
    }
  }

  /// The only layer that uses the value of line l, where it is of this kind and uses nothing else;
  /// else 0.
  std::size_t only(std::size_t l, const std::string& op) const {
    if (consumers_[l].size() != 1) return 0;
    const LayerLine& line = lines_[consumers_[l].front()];
    const bool bare = line.inputs.size() == 1 && line.parameters.empty();
    return line.op == op && bare ? consumers_[l].front() : 0;
  }

  /// What can be computed with the norm or the product of line l; those lines become part of it.
  Then fuse(std::size_t l) {
    const std::size_t relu = only(l, "relu");
    if (relu == 0 || !lines_[relu].numbers.empty()) return Then::Nothing;
    fused_.emplace(relu, Then::Relu);
    if (lines_[l].op == "linear") return Then::Relu;
    const Shape& shape = shapes_[lines_[l].inputs.front()];
    const std::size_t pool = lines_[l].op == "batch_norm" ? only(relu, "max_pool") : 0;
    if (pool == 0 || !pools_in_halves(lines_[pool]) || shape.size() != 3 || shape[1] < 2 ||
        shape[2] < 2) {
      return Then::Relu;
    }
    fused_.emplace(pool, Then::ReluMaxPool);
    return Then::ReluMaxPool;
  }

  static bool pools_in_halves(const LayerLine& line) {
    static const std::map<std::string, std::vector<double>> in_halves{{"kernel", {2, 2}},
                                                                      {"stride", {2, 2}},
                                                                      {"padding", {0, 0}},
                                                                      {"dilation", {1, 1}},
                                                                      {"ceil", {0}}};
    return line.numbers.contains("kernel") &&
           std::all_of(line.numbers.begin(), line.numbers.end(), [](const auto& one) {
             const auto known = in_halves.find(one.first);
             return known != in_halves.end() && known->second == one.second;
           });
  }

  Shape make(Graph& graph, std::size_t l) {
    const LayerLine& line = lines_[l];
    std::vector<Shape> inputs;
    std::vector<std::size_t> from;
    for (const std::size_t input : line.inputs) {
      inputs.push_back(shapes_[input]);
      from.push_back(nodes_[input]);
    }
    if (const auto fused = fused_.find(l); fused != fused_.end()) {
      Shape& shape = inputs.front();
      if (fused->second == Then::ReluMaxPool) shape = {shape[0], shape[1] / 2, shape[2] / 2};
      shapes_.push_back(shape);
      nodes_.push_back(from.front());
      return shape;
    }
    LineReader::Place place{.source = source_,
                            .line = l,
                            .tags = l == head_ ? Tag::Head : Tag::None,
                            .then = Then::Nothing};
    if (!line.constant.empty()) place.constant = &description_.constants.at(line.constant);
    const bool goes_on = line.op == "batch_norm" || line.op == "group_norm" || line.op == "linear";
    if (goes_on && inputs.size() == 1) place.then = fuse(l);
    const LineReader reader(line, std::move(inputs), std::move(place));
    const auto entry = std::find_if(layer_registry().begin(), layer_registry().end(),
                                    [&](const auto& one) { return one.name == line.op; });
    if (entry == layer_registry().end()) {
      reader.fail(concat("there is no such layer",
                         suggestion(nearest(line.op, layer_registry().names())),
                         "; model.backend = autograd trains any TorchScript file"));
    }
    MadeLayer made = entry->make(reader);
    reader.check_keys();
    reader.check(is_bounded(made.shape), "its value holds more than 2^31 numbers");
    nodes_.push_back(made.layer == nullptr ? from.front()
                                           : graph.add(std::move(made.layer), std::move(from)));
    shapes_.push_back(made.shape);
    return made.shape;
  }

  const ModelDescription& description_;
  const std::vector<LayerLine>& lines_;
  const std::string& source_;
  std::vector<Shape> shapes_;                        // of every line's value
  std::vector<std::size_t> nodes_;                   // that hold it
  std::vector<std::vector<std::size_t>> consumers_;  // lines
  std::map<std::size_t, Then> fused_;                // lines that another computes, as its last
  std::size_t head_ = 0;
};

}  // namespace

std::unique_ptr<Model> build_model(const ModelDescription& description, const std::string& source) {
  return Builder(description, source).build();
}

}  // namespace fedhpc
