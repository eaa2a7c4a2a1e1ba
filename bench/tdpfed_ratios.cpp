#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/experiment.hpp"

#include "timing.hpp"

// Whole-run driver: the local work of a TDPFed round (784-100-10, 20 clients, B = 20, tau = 23,
// s = 5, s' = 17, ranks 44 and 5) against its matrix products alone and against autograd, one
// client at a time, taking turns in one process. Usage: tdpfed_ratios [repetitions]

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

constexpr std::int64_t kClients = 20;
constexpr std::int64_t kBatch = 20;
constexpr std::int64_t kTau = 23;
constexpr std::int64_t kInner = 5;
constexpr std::int64_t kFactor = 17;
constexpr double kLambda = 12;
constexpr double kPersonalRate = 0.05;

struct Shape {
  std::int64_t in;
  std::int64_t out;
  std::int64_t rank;
};
const std::vector<Shape> kLayers{{784, 100, 44}, {100, 10, 5}};

/// The project's own path: rounds of a whole experiment, evaluation left out.
class ProjectRounds {
 public:
  explicit ProjectRounds(const std::string& block) : comm_(local_communicator()) {
    std::vector<Assignment> assignments;
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"algorithm.name", "tdpfed"},
                                                          {"algorithm.personal_lr", "0.05"},
                                                          {"data.name", "glyphs"},
                                                          {"data.clients", "20"},
                                                          {"data.samples_per_client", "250"},
                                                          {"train.batch_size", "20"},
                                                          {"train.local_steps", "23"},
                                                          {"train.lr", "3e-4"},
                                                          {"train.block", block},
                                                          {"run.rounds", "1000000"},
                                                          {"run.eval_every", "1000000"}}) {
      assignments.push_back({key, value, {Level::CommandLine, "bench"}});
    }
    config_ = std::make_unique<Config>(assignments, "bench.ini");
    experiment_ = std::make_unique<Experiment>(*config_, *comm_);
  }

  std::int64_t block() const { return experiment_->parts().block_width; }

  /// Calls `between` after each of `rounds` rounds.
  void run(int rounds, const std::function<void()>& between) {
    int done = 0;
    experiment_->run([&](const RoundReport&) { between(); },
                     [&](std::int64_t) { return RoundRequest{.stop = ++done == rounds}; });
  }

 private:
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Config> config_;
  std::unique_ptr<Experiment> experiment_;
};

/// The products of the same work and nothing else, by BLAS as LibTorch carries it.
class ProductsAlone {
 public:
  ProductsAlone() {
    for (const Shape& of : kLayers) {
      layers_.push_back({.x = at::rand({kBatch, of.in}),
                         .y = at::rand({kBatch, of.out}),
                         .w = at::rand({of.out, of.in}),
                         .dw = at::empty({of.out, of.in}),
                         .dx = at::empty({kBatch, of.in}),
                         .a1 = at::rand({of.in, of.rank}),
                         .a2 = at::rand({of.out, of.rank}),
                         .d1 = at::empty({of.in, of.rank}),
                         .d2 = at::empty({of.out, of.rank})});
    }
  }

  void operator()() {
    for (std::int64_t step = 0; step < kClients * kTau; ++step) {
      for (std::int64_t i = 0; i < kInner; ++i) {
        for (Layer& of : layers_) at::mm_out(of.y, of.x, of.w.t());
        for (std::size_t l = layers_.size(); l-- > 0;) {
          Layer& of = layers_[l];
          if (l > 0) at::mm_out(of.dx, of.y, of.w);
          at::mm_out(of.dw, of.y.t(), of.x);
        }
      }
      for (std::int64_t i = 0; i < kFactor; ++i) {
        for (Layer& of : layers_) {
          at::mm_out(of.d1, of.w.t(), of.a2);
          at::mm_out(of.d2, of.w, of.a1);
          at::mm_out(of.w, of.a2, of.a1.t());
        }
      }
    }
  }

 private:
  struct Layer {
    Tensor x, y, w, dw, dx, a1, a2, d1, d2;
  };
  std::vector<Layer> layers_;
};

/// What a user of LibTorch writes: autograd and torch::optim, one client after the other.
class AutogradLoop {
 public:
  void operator()() {
    for (std::int64_t client = 0; client < kClients; ++client) train_client();
  }

 private:
  static Tensor leaf(const Tensor& values) {
    return values.detach().clone().set_requires_grad(true);
  }

  void train_client() {
    std::vector<Tensor> theta;
    std::vector<Tensor> factors;
    for (const Shape& of : kLayers) {
      theta.push_back(leaf(at::randn({of.out, of.in}) * 0.05));
      theta.push_back(leaf(at::zeros({of.out})));
      factors.push_back(leaf(at::randn({of.in, of.rank}) * 0.1));
      factors.push_back(leaf(at::randn({of.out, of.rank}) * 0.1));
      factors.push_back(leaf(at::zeros({of.out})));
    }
    torch::optim::Adam adam(factors, torch::optim::AdamOptions(3e-4));
    for (std::int64_t t = 0; t < kTau; ++t) {
      const Tensor x = at::rand({kBatch, kLayers.front().in});
      const Tensor labels = at::randint(10, {kBatch}, at::kLong);
      torch::optim::SGD nesterov(
          theta, torch::optim::SGDOptions(kPersonalRate).momentum(0.9).nesterov(true));
      const std::vector<Tensor> composed = compose(factors, /*with_gradient=*/false);
      for (std::int64_t i = 0; i < kInner; ++i) {
        nesterov.zero_grad();
        const Tensor hidden = x.matmul(theta[0].t()).add(theta[1]).relu();
        const Tensor logits = hidden.matmul(theta[2].t()).add(theta[3]);
        (torch::nn::functional::cross_entropy(logits, labels) + distance(theta, composed))
            .backward();
        nesterov.step();
      }
      std::vector<Tensor> target;
      for (const Tensor& one : theta) target.push_back(one.detach());
      for (std::int64_t i = 0; i < kFactor; ++i) {
        adam.zero_grad();
        distance(target, compose(factors, /*with_gradient=*/true)).backward();
        adam.step();
      }
    }
  }

  static std::vector<Tensor> compose(const std::vector<Tensor>& factors, bool with_gradient) {
    std::vector<Tensor> composed;
    for (std::size_t l = 0; l < factors.size(); l += 3) {
      composed.push_back(factors[l + 1].matmul(factors[l].t()));
      composed.push_back(factors[l + 2]);
    }
    if (!with_gradient) {
      for (Tensor& one : composed) one = one.detach();
    }
    return composed;
  }

  static Tensor distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    Tensor sum = at::zeros({});
    for (std::size_t i = 0; i < a.size(); ++i) sum = sum + (a[i] - b[i]).square().sum();
    return 0.5 * kLambda * sum;
  }
};

void compare(const std::string& width, int repetitions) {
  ProjectRounds project(width);
  ProductsAlone products;
  AutogradLoop autograd;
  bench::Series round;
  bench::Series blas;
  bench::Series loop;
  double begin = 0;
  const auto timed = [](const auto& work) {
    const double start = cpu_seconds();
    work();
    return cpu_seconds() - start;
  };
  bool warm = false;
  project.run(repetitions + 1, [&] {
    const double seconds = cpu_seconds() - begin;
    if (warm) {
      round.values.push_back(seconds);
      blas.values.push_back(timed([&] { products(); }));
      loop.values.push_back(timed([&] { autograd(); }));
    }
    warm = true;
    begin = cpu_seconds();
  });
  std::printf("%5lld %9.3f %9.3f %9.3f %10.2f %10.2f\n", static_cast<long long>(project.block()),
              round.median_of(), blas.median_of(), loop.median_of(), round.over(blas),
              loop.over(round));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  at::set_num_threads(1);
  std::printf("%5s %9s %9s %9s %10s %10s\n", "block", "round s", "BLAS s", "loop s", "round/BLAS",
              "loop/round");
  for (const char* width : {"auto", "1", "4"}) compare(width, repetitions);
  return 0;
}
