#include "fedhpc/models/sequence_layers.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include "fedhpc/math/products.hpp"

#include "timing.hpp"

// Whole-run driver: forward and backward of recurrent layers and of attention against their matrix
// products alone, taking turns in one process: recurrent ones by the same calls in the same order,
// those of attention by at::bmm. Usage: sequence_layers [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

/// The layer on its own, with a gradient of every input.
class LayerSteps {
 public:
  LayerSteps(std::unique_ptr<Layer> layer, std::int64_t clients, std::int64_t batch,
             const std::vector<std::int64_t>& widths)
      : layer_(std::move(layer)), ids_(static_cast<std::size_t>(clients)) {
    Layout layout;
    layer_->declare(layout);
    std::iota(ids_.begin(), ids_.end(), 0);
    rows_ = at::randn({clients, layout.size()}).mul_(0.05);
    gradient_ = at::empty_like(rows_);
    for (const std::int64_t width : widths) {
      inputs_.push_back(at::randn({clients, batch, width}));
      input_gradients_.push_back(at::empty_like(inputs_.back()));
    }
    output_ = at::empty({clients, batch, layer_->output_features()});
    output_gradient_ = at::randn(output_.sizes());
    saved_ = layer_->make_saved(clients, batch, at::kFloat, Use::Training);
  }

  double operator()() {
    Pass pass{rows_, saved_, Use::Training};
    pass.draws = {.seed = 1, .step = ++step_, .clients = ids_};
    layer_->forward(pass, inputs_, output_);
    layer_->backward(pass, inputs_, output_, output_gradient_, input_gradients_,
                     {.rows = gradient_, .scale = 1, .keep = 0});
    return input_gradients_.front().const_data_ptr<float>()[0];
  }

 private:
  std::unique_ptr<Layer> layer_;
  std::vector<std::int64_t> ids_;
  std::int64_t step_ = 0;
  Tensor rows_;
  Tensor gradient_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> input_gradients_;
  Tensor output_;
  Tensor output_gradient_;
  Saved saved_;
};

/// One product of C matrices each: C = op(A) op(B).
struct Product {
  Tensor a;
  Transpose transpose_a;
  Tensor b;
  Transpose transpose_b;
  Tensor result;

  void operator()(double beta = 0) const {
    batched_product(at::kFloat, result.size(0), 1, matrices_of(a), transpose_a, matrices_of(b),
                    transpose_b, beta, matrices_of(result));
  }
};

Product product_of(std::int64_t count, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                   Transpose transpose_a, Transpose transpose_b) {
  const auto drawn = [&](std::int64_t height, std::int64_t width, Transpose transpose) {
    return transpose == Transpose::No ? at::randn({count, height, width})
                                      : at::randn({count, width, height});
  };
  return {drawn(rows, inner, transpose_a).mul_(0.05), transpose_a,
          drawn(inner, columns, transpose_b).mul_(0.05), transpose_b,
          at::randn({count, rows, columns})};
}

/// Those of a recurrent layer, client after client as the layer takes them.
class RecurrentProducts {
 public:
  RecurrentProducts(std::int64_t clients, std::int64_t batch, std::int64_t gates,
                    const Recurrent::Sizes& sizes)
      : sizes_(sizes), gates_(gates) {
    constexpr auto kNo = Transpose::No;
    constexpr auto kYes = Transpose::Yes;
    const std::int64_t rows = batch * sizes.places;
    for (std::int64_t c = 0; c < clients; ++c) {
      Client of;
      of.inputs = product_of(1, rows, sizes.in, gates, kNo, kYes);
      of.hidden = at::randn({1, batch, sizes.places * sizes.hidden}).mul_(0.05);
      of.weight = at::randn({1, gates, sizes.hidden}).mul_(0.05);
      of.sums = at::randn({1, batch, sizes.places * gates});
      of.carry = at::randn({1, batch, sizes.hidden});
      of.last = {product_of(1, rows, gates, sizes.in, kNo, kNo),
                 product_of(1, gates, rows, sizes.in, kYes, kNo),
                 product_of(1, gates, rows, sizes.hidden, kYes, kNo)};
      clients_.push_back(std::move(of));
    }
  }

  double operator()() const {
    for (const Client& of : clients_) of.inputs(1);
    for (const Client& of : clients_) {
      for (std::int64_t t = 1; t < sizes_.places; ++t) {
        Product{at_place(of.hidden, t - 1, sizes_.hidden), Transpose::No, of.weight, Transpose::Yes,
                at_place(of.sums, t, gates_)}(1);
      }
    }
    for (const Client& of : clients_) {
      for (std::int64_t t = sizes_.places - 1; t > 0; --t) {
        Product{at_place(of.sums, t, gates_), Transpose::No, of.weight, Transpose::No, of.carry}();
      }
      for (const Product& last : of.last) last();
    }
    return clients_.front().carry.const_data_ptr<float>()[0];
  }

 private:
  struct Client {
    Product inputs;
    Tensor hidden;
    Tensor weight;
    Tensor sums;
    Tensor carry;
    std::vector<Product> last;
  };
  static Tensor at_place(const Tensor& stack, std::int64_t t, std::int64_t width) {
    return stack.narrow(2, t * width, width);
  }

  Recurrent::Sizes sizes_;
  std::int64_t gates_;
  std::vector<Client> clients_;
};

/// Those of attention by at::bmm, client after client.
class AttentionProducts {
 public:
  AttentionProducts(std::int64_t clients, std::int64_t batch, const Attention::Sizes& of) {
    constexpr auto kNo = Transpose::No;
    constexpr auto kYes = Transpose::Yes;
    const std::int64_t count = batch * of.heads;
    for (std::int64_t c = 0; c < clients; ++c) {
      for (const Product& one : {product_of(count, of.queries, of.width, of.keys, kNo, kYes),
                                 product_of(count, of.queries, of.keys, of.values, kNo, kNo),
                                 product_of(count, of.keys, of.queries, of.values, kYes, kNo),
                                 product_of(count, of.queries, of.values, of.keys, kNo, kYes),
                                 product_of(count, of.queries, of.keys, of.width, kNo, kNo),
                                 product_of(count, of.keys, of.queries, of.width, kYes, kNo)}) {
        products_.push_back(one);
      }
    }
  }

  double operator()() const {
    const auto op = [](const Tensor& factor, Transpose transpose) {
      return transpose == Transpose::No ? factor : factor.transpose(1, 2);
    };
    for (const Product& one : products_) {
      Tensor result = one.result;
      at::bmm_out(result, op(one.a, one.transpose_a), op(one.b, one.transpose_b));
    }
    return products_.front().result.const_data_ptr<float>()[0];
  }

 private:
  std::vector<Product> products_;
};

template <typename Products>
void compare(const char* title, std::int64_t clients, LayerSteps layer, const Products& products,
             int repetitions) {
  layer();  // first calls allocate
  products();
  Series step;
  Series bare;
  for (int r = 0; r < repetitions; ++r) {
    step.values.push_back(microseconds_per_step(layer, clients));
    bare.values.push_back(microseconds_per_step(products, clients));
  }
  std::printf("%-34s %7lld %10.0f %10.0f %8.2f\n", title, static_cast<long long>(clients),
              step.median_of(), bare.median_of(), step.over(bare));
}

void compare_recurrent(const char* title, std::int64_t clients, std::int64_t batch, Cell cell,
                       const Recurrent::Sizes& sizes, int repetitions) {
  const std::int64_t gates = (cell == Cell::Lstm ? 4 : 3) * sizes.hidden;
  compare(title, clients,
          LayerSteps(std::make_unique<Recurrent>("rnn", cell, sizes, Direction::Forward, Bias::Use),
                     clients, batch, {sizes.places * sizes.in}),
          RecurrentProducts(clients, batch, gates, sizes), repetitions);
}

void compare_attention(const char* title, std::int64_t clients, std::int64_t batch,
                       const Attention::Sizes& of, const Attention::Settings& settings,
                       int repetitions) {
  const std::int64_t q = of.heads * of.queries * of.width;
  const std::int64_t k = of.heads * of.keys * of.width;
  compare(title, clients,
          LayerSteps(std::make_unique<Attention>(of, settings), clients, batch,
                     {q, k, of.heads * of.keys * of.values}),
          AttentionProducts(clients, batch, of), repetitions);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
  at::set_num_threads(1);
  std::printf("%-34s %7s %10s %10s %8s\n", "layer", "clients", "layer us", "bare us", "ratio");
  const Attention::Sizes words{8, 20, 20, 12, 12};
  const Attention::Sizes letters{8, 80, 80, 32, 32};
  for (const std::int64_t clients : {1, 10}) {
    compare_recurrent("lstm 10 x 80, 8 to 256", clients, 10, Cell::Lstm, {80, 8, 256}, repetitions);
    compare_recurrent("lstm 10 x 80, 256 to 256", clients, 10, Cell::Lstm, {80, 256, 256},
                      repetitions);
    compare_recurrent("gru 10 x 80, 8 to 256", clients, 10, Cell::Gru, {80, 8, 256}, repetitions);
    compare_attention("attention 16 x 8 x 20 x 12", clients, 16, words, {.scale = 0.3},
                      repetitions);
    compare_attention("the same, causal", clients, 16, words, {.scale = 0.3, .causal = true},
                      repetitions);
    compare_attention("the same, causal, dropout", clients, 16, words,
                      {.scale = 0.3, .causal = true, .dropout = 0.1}, repetitions);
    compare_attention("attention 10 x 8 x 80 x 32, causal", clients, 10, letters,
                      {.scale = 0.2, .causal = true}, repetitions);
  }
  return 0;
}
