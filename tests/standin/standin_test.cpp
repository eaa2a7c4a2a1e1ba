#include "fixtures/standin.hpp"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/models/device_kernels.hpp"

#include "standin/standin.hpp"

namespace fedhpc {
namespace {

class StandinTest : public ::testing::Test {
 protected:
  Standin& standin_ = Standin::get();
  const at::TensorOptions gpu_ = at::TensorOptions().device(at::kCUDA);
};

template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Memory.

TEST_F(StandinTest, HostCannotReadItsMemory) {
  const Tensor ones = at::ones({4}, gpu_);
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(std::printf("%g", static_cast<double>(ones.data_ptr<float>()[0])), "");
  EXPECT_DEATH(std::memset(ones.data_ptr(), 0, 4), "");
  EXPECT_EQ(ones.sum().item<float>(), 4);
}

TEST_F(StandinTest, NewMemoryIsNotANumber) {
  for (int i = 0; i < 3; ++i) {
    const Tensor values = at::empty({1000}, gpu_);
    EXPECT_TRUE(values.isnan().all().item<bool>());
    values.zero_();
  }
}

TEST_F(StandinTest, MemoryIsUsedAgain) {
  const void* first = at::empty({12345}, gpu_).data_ptr();
  EXPECT_EQ(at::empty({12345}, gpu_).data_ptr(), first);
}

// Operators.

using Inputs = std::vector<Tensor>;
struct Operator {
  std::string name;
  std::function<Tensor(const Inputs&)> work;
};

/// Each gives a tensor of a [3, 4, 5], b [3, 4, 5], c [3, 5, 6], integers k [4] below 4, and an
/// image x [2, 3, 8, 8] with filters w [6, 3, 3, 3].
const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = {
      {"zeros",
       [](const Inputs& in) {
         return at::zeros({2, 3}, in[0].options());
       }},
      {"full",
       [](const Inputs& in) {
         return at::full({2, 3}, 2.5, in[0].options());
       }},
      {"ones", [](const Inputs& in) { return at::ones({2}, in[0].options()); }},
      {"arange", [](const Inputs& in) { return at::arange(7, in[3].options()); }},
      {"linspace", [](const Inputs& in) { return at::linspace(0, 1, 5, in[0].options()); }},
      {"eye", [](const Inputs& in) { return at::eye(3, in[0].options()); }},
      {"tensor",
       [](const Inputs& in) {
         return at::tensor({1., 2.}).to(in[0].device());
       }},
      {"zeros_like", [](const Inputs& in) { return at::zeros_like(in[0]); }},
      {"new_full", [](const Inputs& in) { return in[0].new_full({2}, 3); }},
      {"cat",
       [](const Inputs& in) {
         return at::cat({in[0], in[1]}, 1);
       }},
      {"stack",
       [](const Inputs& in) {
         return at::stack({in[0], in[1]});
       }},
      {"index_select", [](const Inputs& in) { return in[0].index_select(1, in[3]); }},
      {"index",
       [](const Inputs& in) {
         return in[0].index({in[3].remainder(3), in[3]});
       }},
      {"index_copy_", [](const Inputs& in) { return in[0].clone().index_copy_(1, in[4], in[1]); }},
      {"index_add_", [](const Inputs& in) { return in[0].clone().index_add_(1, in[3], in[1]); }},
      {"index_put_",
       [](const Inputs& in) { return in[0].clone().index_put_({in[3].remainder(3)}, in[1][0]); }},
      {"gather",
       [](const Inputs& in) {
         return in[0].gather(1, in[3].view({1, 4, 1}).expand({3, 4, 5}));
       }},
      {"scatter_",
       [](const Inputs& in) {
         return in[0].clone().scatter_(1, in[4].view({1, 4, 1}).expand({3, 4, 5}), in[1]);
       }},
      {"where", [](const Inputs& in) { return at::where(in[0] > 0.5, in[0], in[1]); }},
      {"clone", [](const Inputs& in) { return in[0].clone(); }},
      {"contiguous",
       [](const Inputs& in) {
         return in[0].permute({2, 0, 1}).contiguous();
       }},
      {"repeat",
       [](const Inputs& in) {
         return in[0].repeat({2, 1, 1});
       }},
      {"views",
       [](const Inputs& in) {
         return in[0].narrow(1, 1, 2).select(0, 1).transpose(0, 1).slice(0, 1, 4).unsqueeze(0);
       }},
      {"reshape",
       [](const Inputs& in) {
         return in[0].transpose(0, 1).reshape({-1, 5});
       }},
      {"flatten", [](const Inputs& in) { return in[0].flatten(); }},
      {"expand",
       [](const Inputs& in) {
         return in[0][0].expand({2, 4, 5}) + 1;
       }},
      {"as_strided",
       [](const Inputs& in) {
         return in[0].as_strided({3, 2}, {20, 3}, 1);
       }},
      {"unbind", [](const Inputs& in) { return in[0].unbind(1)[2]; }},
      {"split", [](const Inputs& in) { return in[0].split(2, 1)[1]; }},
      {"arithmetic", [](const Inputs& in) { return (in[0] + in[1]) * in[0] - in[1] / 3; }},
      {"add with alpha", [](const Inputs& in) { return in[0].add(in[1], 0.25); }},
      {"in place",
       [](const Inputs& in) {
         const Tensor values = in[0].clone();
         return values.add_(in[1], 2).mul_(in[1]).sub_(1).div_(in[1] + 1).neg_();
       }},
      {"in place of a view",
       [](const Inputs& in) {
         const Tensor values = in[0].clone();
         values.select(1, 2).mul_(10);
         values.narrow(2, 0, 2).copy_(in[1].narrow(2, 1, 2));
         values[0].fill_(7);
         return values;
       }},
      {"addcmul_", [](const Inputs& in) { return in[0].clone().addcmul_(in[0], in[1], 0.5); }},
      {"lerp_", [](const Inputs& in) { return in[0].clone().lerp_(in[1], 0.1); }},
      {"sum", [](const Inputs& in) { return in[0].sum(); }},
      {"sum of dimensions",
       [](const Inputs& in) {
         return in[0].sum(at::IntArrayRef{0, 2});
       }},
      {"sum in float64", [](const Inputs& in) { return in[0].sum(at::kDouble); }},
      {"mean", [](const Inputs& in) { return in[0].mean({1}); }},
      {"var", [](const Inputs& in) { return in[0].var(1); }},
      {"norm", [](const Inputs& in) { return in[0].norm(2, 1); }},
      {"vector norm", [](const Inputs& in) { return at::linalg_vector_norm(in[0]); }},
      {"amax", [](const Inputs& in) { return in[0].amax(1); }},
      {"max", [](const Inputs& in) { return std::get<1>(in[0].max(1)); }},
      {"argmax", [](const Inputs& in) { return in[0].argmax(1); }},
      {"any", [](const Inputs& in) { return (in[0] > 0.99).any(1); }},
      {"matmul", [](const Inputs& in) { return in[0].matmul(in[2]); }},
      {"mm", [](const Inputs& in) { return in[0][0].mm(in[2][0]); }},
      {"mv", [](const Inputs& in) { return in[0][0].mv(in[2][0].select(1, 0)); }},
      {"dot", [](const Inputs& in) { return in[0].flatten().dot(in[1].flatten()); }},
      {"bmm", [](const Inputs& in) { return at::bmm(in[0], in[2]); }},
      {"bmm_out",
       [](const Inputs& in) {
         Tensor out = at::empty({0}, in[0].options());
         at::bmm_out(out, in[0], in[2]);
         return out;
       }},
      {"baddbmm_",
       [](const Inputs& in) {
         return at::ones({3, 4, 6}, in[0].options()).baddbmm_(in[0], in[2], 0.5, 2);
       }},
      {"addmm_",
       [](const Inputs& in) {
         return at::ones({4, 6}, in[0].options()).addmm_(in[0][0], in[2][0], 1, -1);
       }},
      {"einsum",
       [](const Inputs& in) {
         return at::einsum("cij,cjk->ik", {in[0], in[2]});
       }},
      {"linear", [](const Inputs& in) { return at::linear(in[0][0], in[1][0]); }},
      {"convolution",
       [](const Inputs& in) {
         return at::conv2d(in[5], in[6], at::ones({6}, in[5].options()), {1, 1}, {1, 1});
       }},
      {"convolution_backward",
       [](const Inputs& in) {
         const auto gradients = at::convolution_backward(
             at::ones({2, 6, 6, 6}, in[5].options()), in[5], in[6], at::IntArrayRef{6}, {1, 1},
             {0, 0}, {1, 1}, false, {0, 0}, 1, {true, true, true});
         return at::cat({std::get<0>(gradients).flatten(), std::get<1>(gradients).flatten(),
                         std::get<2>(gradients)});
       }},
      {"max_pool2d",
       [](const Inputs& in) {
         return at::max_pool2d(in[5], {2, 2});
       }},
      {"max_pool2d with places",
       [](const Inputs& in) {
         return std::get<1>(at::max_pool2d_with_indices(in[5], {2, 2}));
       }},
      {"adaptive_avg_pool2d",
       [](const Inputs& in) {
         return at::adaptive_avg_pool2d(in[5], {3, 3});
       }},
      {"batch_norm",
       [](const Inputs& in) {
         return at::batch_norm(in[5], {}, {}, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"relu", [](const Inputs& in) { return at::relu(in[0] - 0.5); }},
      {"softmax", [](const Inputs& in) { return at::log_softmax(in[0], 2); }},
      {"cross entropy", [](const Inputs& in) { return at::cross_entropy_loss(in[0][0], in[3]); }},
      {"sqrt", [](const Inputs& in) { return in[0].sqrt(); }},
      {"exp and abs", [](const Inputs& in) { return (in[0] - 0.5).abs().exp(); }},
      {"pow", [](const Inputs& in) { return in[0].pow(2).rsqrt(); }},
      {"clamp", [](const Inputs& in) { return in[0].clamp(0.2, 0.6).clamp_min_(0.3); }},
      {"masked_fill", [](const Inputs& in) { return in[0].masked_fill(in[1] > 0.5, -1); }},
      {"masked_fill_",
       [](const Inputs& in) { return in[0].clone().masked_fill_((in[1] > 0.5).logical_not(), 2); }},
      {"comparisons", [](const Inputs& in) { return in[0].gt(0.5).logical_and(in[1].le(in[0])); }},
      {"sort", [](const Inputs& in) { return std::get<1>(in[0].sort(1, true)); }},
      {"topk", [](const Inputs& in) { return std::get<0>(in[0].topk(2)); }},
      {"median", [](const Inputs& in) { return std::get<0>(in[0].median(1)); }},
      {"cumsum", [](const Inputs& in) { return in[0].cumsum(1); }},
      {"round", [](const Inputs& in) { return (in[0] * 10).round().floor_(); }},
      {"isfinite", [](const Inputs& in) { return in[0].log().isfinite(); }},
      {"to another type", [](const Inputs& in) { return in[0].to(at::kDouble).to(at::kLong); }},
      {"one_hot", [](const Inputs& in) { return at::one_hot(in[3], 4); }},
      {"flip", [](const Inputs& in) { return in[0].flip({1}); }},
      {"roll", [](const Inputs& in) { return in[0].roll(1, 2); }},
      {"pad",
       [](const Inputs& in) {
         return at::constant_pad_nd(in[5], {1, 1, 2, 0}, 0);
       }},
      {"unfold",
       [](const Inputs& in) {
         return at::im2col(in[5], {3, 3}, {1, 1}, {1, 1}, {1, 1});
       }},
      {"diag", [](const Inputs& in) { return in[0].diagonal(0, 1, 2) * 2; }},
      {"tril", [](const Inputs& in) { return in[0].tril(); }},
      {"outer", [](const Inputs& in) { return at::outer(in[0][0][0], in[1][0][0]); }},
      {"cdist", [](const Inputs& in) { return at::cdist(in[0], in[1]); }},
      {"svd", [](const Inputs& in) { return std::get<1>(at::linalg_svd(in[0][0], false)); }},
      {"qr", [](const Inputs& in) { return std::get<1>(at::linalg_qr(in[0][0])).abs(); }},
      {"eigh",
       [](const Inputs& in) { return std::get<0>(at::linalg_eigh(in[0][0].mm(in[0][0].t()))); }},
      {"solve",
       [](const Inputs& in) {
         const Tensor matrix = in[0][0].mm(in[0][0].t()) + at::eye(4, in[0].options());
         return at::linalg_solve(matrix, in[1][0]);
       }},
      {"cholesky",
       [](const Inputs& in) {
         return at::linalg_cholesky(in[0][0].mm(in[0][0].t()) + at::eye(4, in[0].options()));
       }},
      {"resize_",
       [](const Inputs& in) {
         return in[0].clone().resize_({2, 100}).flatten().slice(0, 0, 60);
       }},
      {"set_data of a sum",
       [](const Inputs& in) {
         Tensor out = at::empty({0}, in[0].options());
         at::sum_out(out, in[0], at::IntArrayRef{1});
         return out;
       }},
      {"foreach",
       [](const Inputs& in) {
         Inputs values = {in[0].clone(), in[1].clone()};
         at::_foreach_add_(values, 1);
         return values[0] + values[1];
       }},
      {"a number of the host", [](const Inputs& in) { return in[0] * at::scalar_tensor(3.0); }},
  };
  return all;
}

Inputs example() {
  at::Generator generator = at::detail::createCPUGenerator(7);
  const auto uniform = [&](at::IntArrayRef shape) { return at::rand(shape, generator); };
  return {uniform({3, 4, 5}),
          uniform({3, 4, 5}),
          uniform({3, 5, 6}),
          at::tensor({3, 0, 2, 2}, at::kLong),
          at::tensor({3, 0, 1, 2}, at::kLong),
          uniform({2, 3, 8, 8}),
          uniform({6, 3, 3, 3})};
}

Inputs on_gpu(const Inputs& inputs) {
  Inputs moved;
  for (const Tensor& input : inputs) moved.push_back(input.to(at::kCUDA));
  return moved;
}

TEST_F(StandinTest, LongLinesOfASoftmaxBeginAlike) {
  const auto lines = [&](std::int64_t rows, std::int64_t length) {
    return at::ones({rows, length}, gpu_.dtype(at::kFloat));
  };
  constexpr const char* kRefused = "of long lines that do not begin alike";
  const auto refused = [&](const auto& work) {
    EXPECT_NE(error_of(work).find(kRefused), std::string::npos);
  };
  const at::Tensor many = lines(2, 1027);
  refused([&] { at::_softmax(many, 1, false); });
  refused([&] { at::_log_softmax(many, -1, false); });
  refused([&] { at::_softmax_backward_data(many, many, 1, at::kFloat); });
  refused([&] { at::_log_softmax_backward_data(many, many, 1, at::kFloat); });
  for (const at::Tensor& allowed : {lines(1, 1027), lines(2, 1028), lines(2, 1023)}) {
    EXPECT_EQ(error_of([&] { at::_softmax(allowed, 1, false); }), "");
  }
  EXPECT_EQ(error_of([&] { at::_softmax(many, 0, false); }), "");
}

TEST_F(StandinTest, OperatorsGiveWhatTheyGiveOnTheCpu) {
  const Inputs inputs = example();
  const Inputs moved = on_gpu(inputs);
  for (const Operator& op : operators()) {
    try {
      const Tensor expected = op.work(inputs);
      const Tensor result = op.work(moved);
      EXPECT_TRUE(result.is_cuda()) << op.name;
      EXPECT_EQ(result.scalar_type(), expected.scalar_type()) << op.name;
      EXPECT_EQ(result.strides(), expected.strides()) << op.name;
      EXPECT_TRUE(at::allclose(result.cpu(), expected, 1e-5, 1e-6)) << op.name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << op.name << ": " << error.what();
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(moved[i].cpu().equal(inputs[i])) << "input " << i << " has changed";
  }
}

TEST_F(StandinTest, OperatorsWorkInInferenceModeToo) {
  const c10::InferenceMode inference;
  const Inputs inputs = example();
  const Inputs moved = on_gpu(inputs);
  for (const Operator& op : operators()) {
    EXPECT_TRUE(at::allclose(op.work(moved).cpu(), op.work(inputs), 1e-5, 1e-6)) << op.name;
  }
}

TEST_F(StandinTest, ViewsShareMemory) {
  const Tensor rows = at::zeros({4, 6}, gpu_);
  for (const Tensor& view : {rows.select(0, 1), rows.narrow(0, 1, 1), rows.view({24}),
                             rows.unfold(1, 2, 2), rows.detach(), rows.unbind(0)[1]}) {
    EXPECT_TRUE(view.is_alias_of(rows));
    EXPECT_TRUE(view.is_cuda());
  }
  rows.t()[2].fill_(1);
  EXPECT_EQ(rows.sum().item<float>(), 4);
}

TEST_F(StandinTest, TensorsOfHostAndDeviceDoNotMix) {
  EXPECT_NE(error_of([&] { at::ones({2}, gpu_).add(at::ones({2})); }), "");
  EXPECT_NE(error_of([&] { at::ones({2}).add_(at::ones({2}, gpu_)); }), "");
}

TEST_F(StandinTest, CopiesConvertAndBroadcast) {
  const Tensor rows = at::zeros({3, 4}, gpu_.dtype(at::kDouble));
  rows.copy_(at::arange(4));
  EXPECT_TRUE(rows.cpu().equal(at::arange(4, at::kDouble).expand({3, 4})));
  const Tensor host = at::zeros({4, 3});
  host.t().copy_(rows);
  EXPECT_TRUE(host.select(1, 2).equal(at::arange(4, at::kFloat)));
}

// Waiting.

TEST_F(StandinTest, WaitsAreCounted) {
  const Tensor ones = at::ones({4}, gpu_);
  const Tensor pinned = gpu_library().pinned({4}, at::kFloat);
  const auto waits = [&](const std::function<void()>& work) {
    const std::int64_t before = standin_.waits();
    work();
    return standin_.waits() - before;
  };
  EXPECT_EQ(waits([&] { ones.add(1).mul_(2).sum(); }), 0);
  EXPECT_EQ(waits([&] { ones.sum().item<float>(); }), 1);
  EXPECT_EQ(waits([&] { ones.cpu(); }), 1);
  EXPECT_EQ(waits([&] { at::ones({4}).to(at::kCUDA); }), 1);
  EXPECT_EQ(waits([&] { ones.clone().copy_(pinned, true); }), 0);
  EXPECT_EQ(waits([&] { pinned.copy_(ones, true); }), 0);
  EXPECT_EQ(waits([&] { pinned.copy_(ones); }), 1);
  EXPECT_EQ(waits([&] { ones.equal(ones); }), 1);
  EXPECT_EQ(waits([&] { ones.nonzero(); }), 1);
  EXPECT_GE(waits([&] { ones.index({ones > 0}); }), 1);
  EXPECT_TRUE(pinned.equal(at::ones({4})));
  EXPECT_TRUE(pinned.slice(0, 1).is_pinned());
  EXPECT_FALSE(at::ones({4}).is_pinned());
}

TEST_F(StandinTest, WaitingCanBeForbidden) {
  const Tensor ones = at::ones({4}, gpu_);
  const Tensor pinned = gpu_library().pinned({4}, at::kFloat);
  {
    const NoWaiting forbidden;
    EXPECT_NE(error_of([&] { ones.sum().item<float>(); }), "");
    EXPECT_NE(error_of([&] { ones.cpu(); }), "");
    EXPECT_NE(error_of([&] { at::ones({4}).to(at::kCUDA); }), "");
    EXPECT_NE(error_of([&] {
                c10::Event event(at::kCUDA);
                event.record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream({at::kCUDA, 0}));
                event.synchronize();
              }),
              "");
    pinned.copy_(ones.add(1), true);
  }
  c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(0);
  EXPECT_EQ(pinned.sum().item<float>(), 8);
  EXPECT_EQ(ones.sum().item<float>(), 4);
}

TEST_F(StandinTest, StreamsAndEvents) {
  const c10::impl::VirtualGuardImpl device(at::kCUDA);
  const c10::Stream first = device.getStream({at::kCUDA, 0});
  const c10::Stream second = device.getStreamFromGlobalPool({at::kCUDA, 0});
  EXPECT_NE(first, second);
  c10::Event begin(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  begin.record(first);
  {
    const c10::StreamGuard guard(second);
    EXPECT_EQ(device.getStream({at::kCUDA, 0}), second);
    begin.block(second);
    EXPECT_EQ(at::ones({3}, gpu_).sum().item<float>(), 3);
    end.record(second);
  }
  EXPECT_EQ(device.getStream({at::kCUDA, 0}), first);
  const std::int64_t before = standin_.waits();
  end.synchronize();
  second.synchronize();
  EXPECT_EQ(standin_.waits() - before, 2);
  EXPECT_TRUE(end.query());
  EXPECT_GE(begin.elapsedTime(end), 0);
}

// Graphs.

TEST_F(StandinTest, CapturingComputesNothing) {
  const Tensor counter = at::zeros({1}, gpu_.dtype(at::kLong));
  const Tensor input = at::full({4}, 3.F, gpu_);
  Tensor result;
  const auto graph = device_kernels().capture([&] {
    counter.add_(1);
    result = input.mul(2).add_(1);
    input.zero_();
    device_kernels().advance(counter.data_ptr<std::int64_t>(), 1);
  });
  EXPECT_EQ(counter.item<std::int64_t>(), 0);
  EXPECT_TRUE(input.cpu().equal(at::full({4}, 3.F)));
  EXPECT_TRUE(result.isnan().all().item<bool>());
  graph->replay();
  EXPECT_EQ(counter.item<std::int64_t>(), 2);
  EXPECT_TRUE(result.cpu().equal(at::full({4}, 7.F)));
  EXPECT_TRUE(input.cpu().equal(at::zeros({4})));
}

TEST_F(StandinTest, ReplayingUsesWhatIsThereByThen) {
  const Tensor input = at::zeros({2, 3}, gpu_);
  const Tensor weights = at::ones({3, 2}, gpu_);
  Tensor result;
  Tensor kept = at::zeros({2}, gpu_);
  double number = 2;
  const auto graph = device_kernels().capture([&] {
    const Tensor view = input.narrow(1, 0, 3);
    result = view.mm(weights).mul(number).relu();
    kept.add_(result.select(1, 0));
    std::get<0>(result.max(1)).add_(1);
  });
  number = 100;  // too late
  for (int i = 1; i <= 3; ++i) {
    input.fill_(i);
    graph->replay();
    EXPECT_TRUE(result.cpu().equal(at::full({2, 2}, 6.F * static_cast<float>(i)))) << i;
  }
  EXPECT_TRUE(kept.cpu().equal(at::full({2}, 36.F)));
}

TEST_F(StandinTest, EveryOperatorIsReplayed) {
  const Inputs inputs = example();
  const Inputs other = on_gpu(inputs);
  Inputs moved = on_gpu(inputs);
  for (Tensor& input : moved) input.zero_();
  for (const Operator& op : operators()) {
    if (op.name == "tensor" || op.name == "svd" || op.name == "eigh" || op.name == "solve" ||
        op.name == "cholesky" || op.name == "one_hot") {
      continue;  // the host waits
    }
    try {
      Tensor result;
      const auto graph = device_kernels().capture([&] { result = op.work(moved); });
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i].copy_(other[i]);
      graph->replay();
      EXPECT_TRUE(at::allclose(result.cpu(), op.work(inputs), 1e-5, 1e-6)) << op.name;
    } catch (const std::exception& error) {
      ADD_FAILURE() << op.name << ": " << error.what();
    }
    for (Tensor& input : moved) input.zero_();
  }
}

TEST_F(StandinTest, WaitingCannotBeCaptured) {
  const Tensor ones = at::ones({4}, gpu_);
  const auto captured = [&](const std::function<void()>& work) {
    return error_of([&] { device_kernels().capture(work); });
  };
  EXPECT_NE(captured([&] { ones.sum().item<float>(); }), "");
  EXPECT_NE(captured([&] { ones.cpu(); }), "");
  EXPECT_NE(captured([&] { ones.copy_(at::zeros({4}), true); }), "");
  EXPECT_EQ(ones.sum().item<float>(), 4);  // the failed captures are over
}

TEST_F(StandinTest, PinnedMemoryIsCopiedAtReplay) {
  const Tensor from = gpu_library().pinned({4}, at::kFloat);
  const Tensor to = gpu_library().pinned({4}, at::kFloat);
  const Tensor device = at::zeros({4}, gpu_);
  from.fill_(1);
  to.fill_(0);
  const auto graph = device_kernels().capture([&] {
    device.copy_(from, true);
    to.copy_(device.add(1), true);
  });
  EXPECT_TRUE(to.equal(at::zeros({4})));
  from.fill_(5);
  graph->replay();
  c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(0);
  EXPECT_TRUE(to.equal(at::full({4}, 6.F)));
}

// A graph has its memory to itself until it is gone.
TEST_F(StandinTest, MemoryOfAGraphIsNotUsedByOthers) {
  const Tensor sum = at::zeros({1000}, gpu_);
  const void* inner = nullptr;
  auto graph = device_kernels().capture([&] {
    const Tensor twice = sum.add(1);
    inner = twice.data_ptr();
    device_kernels<ModelKernels>().accumulate(
        {.type = DType::Float32,
         .rows = 1,
         .columns = 1000,
         .values = {twice.data_ptr(), 1000},
         .sink = {.out = {sum.data_ptr(), 1000}, .scale = 1, .keep = 1}});
  });
  const Tensor other = at::zeros({1000}, gpu_);
  EXPECT_NE(other.data_ptr(), inner);
  graph->replay();
  graph->replay();
  EXPECT_TRUE(sum.cpu().equal(at::full({1000}, 3.F)));
  EXPECT_TRUE(other.cpu().equal(at::zeros({1000})));
  graph = nullptr;
  EXPECT_EQ(at::empty({1000}, gpu_).data_ptr(), inner);
}

// Own kernels.

TEST_F(StandinTest, ProductsRoundTheirFactors) {
  const Inputs in = example();
  const Tensor a = in[0];
  const Tensor b = in[2];
  const Tensor a_gpu = a.to(at::kCUDA);
  const Tensor b_gpu = b.transpose(1, 2).contiguous().to(at::kCUDA);
  const auto product = [&](Precision precision) {
    const Tensor result = at::ones({3, 4, 6}, gpu_);
    device_kernels<MathKernels>().product(
        {.type = DType::Float32,
         .precision = precision,
         .count = 3,
         .rows = 4,
         .columns = 6,
         .inner = 5,
         .alpha = 2,
         .beta = 0.5,
         .a = {.data = a_gpu.data_ptr(), .stack_stride = 20, .row_stride = 5},
         .b = {.data = b_gpu.data_ptr(), .stack_stride = 30, .row_stride = 5, .transposed = true},
         .result = {.data = result.data_ptr(), .stack_stride = 24, .row_stride = 6}});
    return result.cpu();
  };
  EXPECT_TRUE(at::allclose(product(Precision::Fp32), at::bmm(a, b).mul(2).add(0.5)));
  const Tensor bf16 =
      at::bmm(a.to(at::kBFloat16).to(at::kFloat), b.to(at::kBFloat16).to(at::kFloat));
  EXPECT_TRUE(at::allclose(product(Precision::Bf16), bf16.mul(2).add(0.5)));
  EXPECT_TRUE(at::allclose(product(Precision::Tf32), product(Precision::Fp32), 1e-3));
  EXPECT_FALSE(product(Precision::Tf32).equal(product(Precision::Fp32)));
}

TEST_F(StandinTest, KernelsTakeNoAddressesOfTheHost) {
  if (!kFindsAddressesOfHost) GTEST_SKIP() << "this compiler clears no padding";
  const Tensor rows = at::ones({1, 8}, gpu_);
  const Tensor host = at::ones({1, 8});
  const Tensor pinned = gpu_library().pinned({1, 8}, at::kFloat);
  pinned.fill_(2);
  const auto add = [&](const Tensor& values) {
    device_kernels<ModelKernels>().accumulate(
        {.type = DType::Float32,
         .rows = 1,
         .columns = 8,
         .values = device_columns(values),
         .sink = {.out = device_columns(rows), .scale = 1, .keep = 1}});
  };
  EXPECT_NE(error_of([&] { add(host); }), "");
  EXPECT_EQ(error_of([&] { add(pinned); }), "");
  EXPECT_EQ(error_of([&] { add(rows); }), "");
  EXPECT_TRUE(rows.cpu().equal(at::full({1, 8}, 6.F)));
}

TEST_F(StandinTest, RangesAndPrecisionAreSeen) {
  const int before = standin_.ranges();
  {
    const DeviceScope scope(true, "a range");
    EXPECT_EQ(standin_.open_ranges(), 1);
  }
  EXPECT_EQ(standin_.open_ranges(), 0);
  EXPECT_EQ(standin_.ranges(), before + 1);
  device_kernels<MathKernels>().use_precision(Precision::Tf32);
  EXPECT_EQ(standin_.precision(), Precision::Tf32);
}

}  // namespace
}  // namespace fedhpc
