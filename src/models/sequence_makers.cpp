#include <cmath>

#include "fedhpc/models/sequence_layers.hpp"

#include "models/layer_makers.hpp"

namespace fedhpc {

namespace {

MadeLayer make_recurrent(const LineReader& line, Cell cell) {
  const Shape& shape = line.input(2, 2);
  const std::int64_t hidden = line.integer("hidden", 1);
  const Direction direction =
      line.flag_or("reverse", false) ? Direction::Reverse : Direction::Forward;
  line.check(line.parameter_count() == 2 || line.parameter_count() == 4,
             concat("it names ", line.parameter_count(), " parameters, it needs 2 or 4"));
  const Bias bias = line.parameter_count() == 4 ? Bias::Use : Bias::None;
  const std::int64_t gates = cell == Cell::Lstm ? 4 : 3;
  line.check(is_bounded({shape[0], gates, hidden}) && is_bounded({gates, hidden, shape[1]}) &&
                 is_bounded({gates, hidden, hidden}),
             "it holds more than 2^31 numbers");
  return {std::make_unique<Recurrent>(line.parameters(2, 4), cell,
                                      Recurrent::Sizes{shape[0], shape[1], hidden}, direction, bias,
                                      line.tags()),
          {shape[0], hidden}};
}

}  // namespace

MadeLayer make_lstm_layer(const LineReader& line) { return make_recurrent(line, Cell::Lstm); }

MadeLayer make_gru_layer(const LineReader& line) { return make_recurrent(line, Cell::Gru); }

MadeLayer make_attention_layer(const LineReader& line) {
  const std::vector<Shape>& inputs = line.inputs(3, 4);
  const Shape& q = inputs[0];
  const Shape& k = inputs[1];
  const Shape& v = inputs[2];
  const auto leading = [](const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); };
  for (const Shape& shape : inputs) {
    line.check(shape.size() >= 2, concat("an input has the shape ", at::IntArrayRef(shape),
                                         ", it needs 2 dimensions or more"));
  }
  const std::size_t n = q.size();
  line.check(k.size() == n && v.size() == n && leading(q) == leading(k) &&
                 leading(q) == leading(v) && q[n - 1] == k[n - 1] && k[n - 2] == v[n - 2],
             concat("its inputs have the shapes ", at::IntArrayRef(q), ", ", at::IntArrayRef(k),
                    " and ", at::IntArrayRef(v), ", which are no q, k and v"));
  const Attention::Sizes sizes{values_of(leading(q)), q[n - 2], k[n - 2], q[n - 1], v[n - 1]};
  line.check(is_bounded({sizes.heads, sizes.queries, sizes.keys}),
             "its scores are more than 2^31 numbers");
  Attention::Settings settings;
  settings.scale = line.number_or("scale", 1 / std::sqrt(static_cast<double>(sizes.width)));
  settings.causal = line.flag_or("causal", false);
  settings.dropout = line.number_or("dropout", 0);
  settings.number = line.number();
  line.check(0 <= settings.dropout && settings.dropout <= 1,
             concat("'dropout' is ", settings.dropout, "; allowed: numbers from 0 to 1"));
  if (inputs.size() == 4) {
    Shape each = leading(q);
    each.insert(each.end(), {sizes.queries, sizes.keys});
    const Shape all{sizes.queries, sizes.keys};
    line.check(inputs[3] == each || inputs[3] == all,
               concat("its mask has the shape ", at::IntArrayRef(inputs[3]), ", it needs ",
                      at::IntArrayRef(all), " or ", at::IntArrayRef(each)));
    settings.mask = inputs[3] == all ? Attention::Mask::OfAllHeads : Attention::Mask::OfEachHead;
  }
  Shape shape = q;
  shape.back() = sizes.values;
  return {std::make_unique<Attention>(sizes, settings), shape};
}

}  // namespace fedhpc
