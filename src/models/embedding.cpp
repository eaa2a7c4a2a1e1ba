#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/List.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gather.h>

#include "fedhpc/core/device.hpp"

#include "models/layer_makers.hpp"
#include "models/stacks.hpp"

namespace fedhpc {

namespace {

/// Row number x of a table [rows, columns], for each x of a sample. Numbers come as the run's
/// floating point numbers.
class Embedding final : public Layer {
 public:
  struct Table {
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t padding;  // the row without a gradient; -1: none
  };

  Embedding(ParameterNames names, Table table, std::int64_t places, Tag tags, std::string place)
      : names_(std::move(names)),
        table_(table),
        places_(places),
        tags_(tags | kTableTags),
        place_(std::move(place)) {}

  std::int64_t output_features() const override { return places_ * table_.columns; }
  void declare(Layout& layout) override {
    column_ = layout.size();
    layout.add(names_.of(0, "weight"), {table_.rows, table_.columns}, table_.rows, tags_,
               Initial::Embedding, table_.padding);
  }

  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override {
    const Tensor& input = inputs[0];
    if (on_device(output)) return forward_on_device(pass, input, output);
    const Tensor& weights = pass.weights;
    with_type(output.scalar_type(), [&]<typename T>() {
      for (std::int64_t c = 0; c < output.size(0); ++c) {
        const T* table = weights.const_data_ptr<T>() + c * weights.stride(0) + column_;
        const T* numbers = samples_of<T>(input, c);
        T* y = samples_of<T>(output, c);
        for (std::int64_t i = 0; i < output.size(1) * places_; ++i) {
          if (!names_a_row(numbers[i])) fail(numbers[i]);
          std::copy_n(table + static_cast<std::int64_t>(numbers[i]) * table_.columns,
                      table_.columns, y + i * table_.columns);
        }
      }
    });
  }

  /// Takes the numbers in their order, so that a row's sum is the same whoever stands beside it.
  void backward(const Pass&, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink& sink) const override {
    if (input_gradients[0].defined()) input_gradients[0].zero_();
    if (!sink.columns.hold(tags_)) return;
    const Tensor table = table_in(sink.rows);
    if (sink.keep == 0) {
      table.zero_();
    } else if (sink.keep != 1) {
      table.mul_(sink.keep);
    }
    if (on_device(table)) return add_on_device(inputs[0], output_gradient, table, sink.scale);
    with_type(table.scalar_type(), [&]<typename T>() {
      const auto scale = static_cast<T>(sink.scale);
      for (std::int64_t c = 0; c < table.size(0); ++c) {
        const T* numbers = samples_of<T>(inputs[0], c);
        const T* dy = samples_of<T>(output_gradient, c);
        for (std::int64_t i = 0; i < output_gradient.size(1) * places_; ++i) {
          const auto row = static_cast<std::int64_t>(numbers[i]);
          if (row == table_.padding) continue;
          T* into = samples_of<T>(table, c) + row * table_.columns;
          for (std::int64_t k = 0; k < table_.columns; ++k) {
            into[k] += scale * dy[i * table_.columns + k];
          }
        }
      }
    });
  }

 private:
  template <typename T>
  bool names_a_row(T number) const {
    return number >= T{0} && number < static_cast<T>(table_.rows) && number == std::floor(number);
  }

  [[noreturn]] void fail(double number) const {
    const char* remedy = number > std::floor(number) ? ", as data.standardize = none leaves them"
                         : number > 0
                             ? ", or more with a larger model.vocabulary (in a model file: rows)"
                             : "";
    throw DataError(concat(place_, ": the input holds ", number,
                           "; allowed: whole numbers from 0 to ", table_.rows - 1, remedy));
  }

  /// The tables [C, rows, columns] in rows [C, P].
  Tensor table_in(const Tensor& rows) const {
    return rows.narrow(1, column_, table_.rows * table_.columns)
        .unflatten(1, {table_.rows, table_.columns});
  }

  /// Row numbers [C, N] that are safe to use.
  Tensor numbers_of(const Tensor& input) const {
    return input.flatten(1).nan_to_num(0.0).clamp(0, table_.rows - 1).to(at::kLong);
  }

  /// The host does not wait to look at the numbers: what is no row becomes NaN.
  void forward_on_device(const Pass& pass, const Tensor& input, const Tensor& output) const {
    const Tensor numbers = numbers_of(input).unsqueeze(2);  // [C, N, 1]
    const Tensor rows =
        at::gather(table_in(pass.weights), 1, numbers.expand({-1, -1, table_.columns}));
    const Tensor wrong = input.flatten(1).unsqueeze(2).ne(numbers);
    output.view(rows.sizes())
        .copy_(rows.masked_fill(wrong, std::numeric_limits<double>::quiet_NaN()));
  }

  /// An accumulating index_put_ sorts the numbers by a stable sort and adds in that order.
  void add_on_device(const Tensor& input, const Tensor& output_gradient, const Tensor& table,
                     double scale) const {
    const Tensor numbers = numbers_of(input);
    const Tensor clients =
        at::arange(table.size(0), numbers.options()).unsqueeze(1).expand_as(numbers);
    Tensor terms = output_gradient.reshape({table.size(0), -1, table_.columns}).mul(scale);
    terms = terms.masked_fill(numbers.eq(table_.padding).unsqueeze(2), 0);
    Tensor into = table;
    into.index_put_(c10::List<std::optional<Tensor>>({clients, numbers}), terms, true);
  }

  ParameterNames names_;
  Table table_;
  std::int64_t places_;
  Tag tags_;
  std::string place_;  // as messages begin
  std::int64_t column_ = 0;
};

}  // namespace

MadeLayer make_embedding_layer(const LineReader& line) {
  Shape shape = line.input();
  const std::int64_t rows = line.integer("rows", 1);
  const Embedding::Table table{rows, line.integer("columns", 1),
                               line.integer_or("padding", -1, -1, rows - 1)};
  const std::int64_t places = values_of(shape);
  shape.push_back(table.columns);
  line.check(is_bounded({table.rows, table.columns}), "its table holds more than 2^31 numbers");
  line.check(is_bounded(shape), "its value holds more than 2^31 numbers");
  return {
      std::make_unique<Embedding>(line.parameters(1, 1), table, places, line.tags(), line.place()),
      shape};
}

}  // namespace fedhpc
