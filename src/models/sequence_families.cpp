#include <cmath>

#include <ATen/ops/empty.h>

#include "models/description_writer.hpp"
#include "models/families.hpp"

// Networks over sequences: a sample is a row of whole numbers, of letters or of words.
namespace fedhpc {

namespace {

using Numbers = DescriptionWriter::Numbers;

std::vector<double> number(std::int64_t value) { return {static_cast<double>(value)}; }

/// The description of a family up to the rows [places, columns] of its embedding.
DescriptionWriter embedded(const ModelOptions& options, const Shape& shape, std::int64_t classes,
                           std::int64_t columns, std::int64_t padding) {
  if (shape.size() != 1) {
    throw ConfigError(concat("model.name = ", options.name,
                             " takes samples that are one row of whole numbers; these have the "
                             "shape ",
                             at::IntArrayRef(shape), ", so choose another model or other data"));
  }
  if (!options.vocabulary && classes == 1) {
    throw ConfigError(
        "model.vocabulary = auto is the number of classes, which the data with this "
        "train.loss have not; set it to the rows of the embedding");
  }
  const std::int64_t rows = options.vocabulary.value_or(classes);
  const std::int64_t none = options.padding.value_or(padding);
  if (none >= rows) {
    throw ConfigError(concat("model.padding is ", none, "; the embedding has ", rows,
                             " rows, so choose one below or a larger model.vocabulary"));
  }
  DescriptionWriter net(shape);
  net.add("embedding", "embedding",
          {{"rows", number(rows)}, {"columns", number(columns)}, {"padding", number(none)}},
          {"weight"}, {net.last()});
  return net;
}

/// Throws unless the data ask for something at so many places as the network tells it at.
void check_places(const ModelOptions& options, const Outputs& outputs, std::int64_t places) {
  if (outputs.places == places) return;
  throw ConfigError(concat("model.name = ", options.name, " tells something at ", places,
                           places == 1 ? " place" : " places",
                           " of a sample, the data's targets ask for ", outputs.places,
                           "; choose another model, model.places or other data"));
}

/// sin(t / 10000^(2i / E)) in the even columns 2i of place t, the cosine beside it (Vaswani et al.,
/// "Attention is all you need", 2017, 3.5).
Tensor sinusoids(std::int64_t places, std::int64_t columns) {
  const Tensor table = at::empty({places, columns}, at::kDouble);
  double* values = table.data_ptr<double>();
  for (std::int64_t t = 0; t < places; ++t) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto even = static_cast<double>(k - k % 2);
      const double angle =
          static_cast<double>(t) / std::pow(10000.0, even / static_cast<double>(columns));
      values[t * columns + k] = k % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  return table;
}

/// The encoder layers of a transformer, on rows [places, width].
class Encoder {
 public:
  Encoder(DescriptionWriter& net, const ModelOptions& options, std::int64_t places,
          std::int64_t width)
      : net_(net),
        places_(places),
        width_(width),
        heads_(options.heads),
        feed_forward_(options.feed_forward),
        dropout_(options.dropout) {
    if (width_ % heads_ != 0) {
      throw ConfigError(concat("model.heads is ", heads_, "; it has to divide the ", width_,
                               " columns of the embedding (model.embedding)"));
    }
  }

  void drop() { net_.add("dropout", {{"p", {dropout_}}}); }

  /// x = norm1(x + attention(x)), then norm2(x + feed_forward(x)).
  void add(const std::string& name) {
    Line before = net_.last();
    attend(name + ".self_attn");
    drop();
    add_and_norm(before, name + ".norm1");
    before = net_.last();
    net_.linear(name + ".linear1", feed_forward_, Bias::Use);
    net_.add("relu");
    drop();
    net_.linear(name + ".linear2", width_, Bias::Use);
    drop();
    add_and_norm(before, name + ".norm2");
  }

 private:
  using Line = DescriptionWriter::Line;

  void attend(const std::string& name) {
    net_.add(name, "linear", {{"out", number(3 * width_)}}, {"in_proj_weight", "in_proj_bias"},
             {net_.last()});
    net_.reshape({places_, 3, heads_, width_ / heads_});
    const Line all = net_.add("permute", {{"dims", {1, 2, 0, 3}}});
    std::vector<Line> parts;
    for (const std::int64_t part : {0, 1, 2}) {
      net_.go_on_from(all);
      net_.add("slice", {{"dim", {0}}, {"start", number(part)}, {"end", number(part + 1)}});
      parts.push_back(net_.reshape({heads_, places_, width_ / heads_}));
    }
    net_.add("attention", {{"causal", {1}}, {"dropout", {dropout_}}}, parts);
    net_.add("permute", {{"dims", {1, 0, 2}}});
    net_.reshape({places_, width_});
    net_.linear(name + ".out_proj", width_, Bias::Use);
  }

  void add_and_norm(Line before, const std::string& name) {
    net_.add("add", {}, {before, net_.last()});
    net_.add(name, "layer_norm", {{"dims", {1}}}, {"weight", "bias"}, {net_.last()});
  }

  DescriptionWriter& net_;
  std::int64_t places_;
  std::int64_t width_;
  std::int64_t heads_;
  std::int64_t feed_forward_;
  double dropout_;
};

}  // namespace

/// LEAF's Shakespeare network: a next letter after the last one, or after every one.
std::unique_ptr<Model> make_lstm_leaf(const ModelOptions& options,
                                      const std::vector<std::int64_t>& shape,
                                      const Outputs& outputs) {
  DescriptionWriter net =
      embedded(options, shape, outputs.classes, options.embedding.value_or(8), /*padding=*/-1);
  for (std::int64_t i = 0; i < options.layers.value_or(2); ++i) {
    net.add("lstm", "lstm", {{"hidden", number(options.units)}},
            {concat("weight_ih_l", i), concat("weight_hh_l", i), concat("bias_ih_l", i),
             concat("bias_hh_l", i)},
            {net.last()});
  }
  check_places(options, outputs, options.places == Places::Last ? 1 : shape[0]);
  if (options.places == Places::Last) {
    net.add("slice", {{"dim", {0}}, {"start", number(shape[0] - 1)}, {"end", number(shape[0])}});
    net.reshape({options.units});
  }
  net.linear("fc", outputs.classes, Bias::Use);
  return net.build();
}

/// A causal transformer whose layers normalise after they add: PyTorch's TransformerEncoderLayer
/// with its defaults.
std::unique_ptr<Model> make_transformer(const ModelOptions& options,
                                        const std::vector<std::int64_t>& shape,
                                        const Outputs& outputs) {
  const std::int64_t width = options.embedding.value_or(96);
  DescriptionWriter net = embedded(options, shape, outputs.classes, width, /*padding=*/0);
  check_places(options, outputs, shape[0]);
  Encoder encoder(net, options, shape[0], width);
  const DescriptionWriter::Line rows =
      net.add("affine", {{"factor", {std::sqrt(static_cast<double>(width))}}});
  const DescriptionWriter::Line positions = net.constant("positions", sinusoids(shape[0], width));
  net.add("add", {}, {rows, positions});
  encoder.drop();
  for (std::int64_t i = 0; i < options.layers.value_or(3); ++i) encoder.add(concat("layers.", i));
  net.linear("fc", outputs.classes, Bias::None);
  return net.build();
}

}  // namespace fedhpc
