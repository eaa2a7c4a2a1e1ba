#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fedhpc/core/registry.hpp"
#include "fedhpc/models/model.hpp"

namespace fedhpc {

/// One layer of a description, as a line of a model file has it (docs/model-files.md).
struct LayerLine {
  std::string op;
  std::vector<std::size_t> inputs{};      // numbers of lines
  std::vector<std::string> parameters{};  // their names
  std::map<std::string, std::vector<double>> numbers{};
  std::string name{};      // the place in the module
  std::string constant{};  // the name of its numbers
};

/// A network, layer by layer: what a file holds, and what the families are made of.
struct ModelDescription {
  std::vector<LayerLine> lines;
  std::map<std::string, Tensor> constants{};  // float64

  /// Adds a line on the values of these lines and returns its number.
  std::size_t add(LayerLine line);
};

/// "linear out=10 name=fc1 inputs=3 parameters=fc1.weight,fc1.bias", and back. Throws DataError for
/// a text that is no such line.
std::string text_of(const LayerLine& line);
LayerLine line_of(std::string_view text);

/// Makes the layers of a description. Batch norm, ReLU and 2x2 max pooling in a row become one
/// layer; so do group norm and ReLU, and a linear layer and ReLU. The head is the last linear layer
/// or convolution. `source` begins the message where a line does not fit: "model.file 'net.h5'".
/// Throws DataError.
std::unique_ptr<Model> build_model(const ModelDescription& description, const std::string& source);

/// What a layer's builder knows of its line; it answers with messages that name the line.
class LineReader {
 public:
  struct Place {
    std::string source;                // of the description
    std::size_t line = 0;              // its number
    Tag tags = Tag::None;              // Head, or none
    Then then = Then::Nothing;         // what it computes beside itself
    const Tensor* constant = nullptr;  // the line's numbers, where it names some
  };

  LineReader(const LayerLine& line, std::vector<Shape> inputs, Place place)
      : line_(line), inputs_(std::move(inputs)), place_(std::move(place)) {}

  /// Names the source, the line and its place in the module, as messages begin.
  std::string place() const;
  /// Throws DataError that begins with place().
  [[noreturn]] void fail(const std::string& what) const;
  /// fail(), unless `holds`.
  void check(bool holds, const std::string& what) const {
    if (!holds) fail(what);
  }

  /// The inputs, of which there are so many.
  const std::vector<Shape>& inputs(std::size_t least, std::size_t most) const;
  /// The only input.
  const Shape& input() const { return inputs(1, 1).front(); }
  /// The only input, with one of these numbers of dimensions.
  const Shape& input(std::size_t least, std::size_t most) const;

  /// The numbers of a key that has to be there, and of one that may be left out.
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most = kMost) const;
  std::int64_t integer_or(const std::string& key, std::int64_t otherwise, std::int64_t least,
                          std::int64_t most = kMost) const;
  std::vector<std::int64_t> integers(const std::string& key, std::size_t count, std::int64_t least,
                                     std::int64_t most = kMost) const;
  std::vector<std::int64_t> integers_or(const std::string& key, std::size_t count,
                                        std::int64_t otherwise, std::int64_t least,
                                        std::int64_t most = kMost) const;
  double number_or(const std::string& key, double otherwise) const;
  bool flag_or(const std::string& key, bool otherwise) const {
    return integer_or(key, otherwise ? 1 : 0, 0, 1) == 1;
  }
  bool has(const std::string& key) const { return line_.numbers.contains(key); }
  /// As many lengths as the key has, each at least 1.
  Shape shape(const std::string& key) const;
  /// A dimension of `of`.
  std::size_t dimension(const std::string& key, const Shape& of) const;
  /// Different dimensions of `of`.
  std::vector<std::size_t> dimensions(const std::string& key, const Shape& of) const;

  /// The names of the parameters, of which there are so many.
  ParameterNames parameters(std::size_t least, std::size_t most) const;
  std::size_t parameter_count() const { return line_.parameters.size(); }
  /// Bias::Use where the line names a second parameter.
  Bias bias() const { return parameter_count() == 2 ? Bias::Use : Bias::None; }

  Tag tags() const { return place_.tags; }
  Then then() const { return place_.then; }
  /// A number of the layer that no other layer of the model has.
  std::int64_t number() const { return static_cast<std::int64_t>(place_.line); }
  const Tensor& constant() const;

  /// Throws DataError where the line has a key, parameters or a constant nobody has asked for.
  void check_keys() const;

  static constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

 private:
  const std::vector<double>* find(const std::string& key) const;
  std::vector<std::int64_t> whole(const std::string& key, const std::vector<double>& numbers,
                                  std::int64_t least, std::int64_t most) const;

  const LayerLine& line_;
  std::vector<Shape> inputs_;
  Place place_;
  mutable std::vector<std::string> asked_{};
  mutable bool takes_parameters_ = false;
  mutable bool takes_constant_ = false;
};

/// What a line becomes: a layer and the shape of its value. Without a layer the value is the
/// input's.
struct MadeLayer {
  std::unique_ptr<Layer> layer;
  Shape shape;
};

/// Every kind of layer that a description names.
Registry<MadeLayer(const LineReader&)>& layer_registry();

/// The number of values of this shape.
std::int64_t values_of(const Shape& shape);
/// Whether that is from 1 to 2^31 - 1.
bool is_bounded(const Shape& shape);

}  // namespace fedhpc
