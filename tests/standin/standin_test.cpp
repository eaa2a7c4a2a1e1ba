#include <dlfcn.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {
namespace {

TEST(Spike, Works) {
  ASSERT_NE(dlopen(FEDHPC_STANDIN, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const auto gpu = at::TensorOptions().device(at::kCUDA);
  Tensor a = at::empty({3, 4}, gpu);
  EXPECT_TRUE(a.cpu().isnan().all().item<bool>());
  a.fill_(2);
  Tensor b = a.add(a).mul(3);
  EXPECT_TRUE(b.is_cuda());
  EXPECT_TRUE(b.cpu().equal(at::full({3, 4}, 12.F)));
  Tensor x = at::rand({2, 3, 4}), y = at::rand({2, 4, 5}), z = at::rand({2, 3, 5});
  Tensor zd = z.to(at::kCUDA);
  zd.baddbmm_(x.to(at::kCUDA), y.to(at::kCUDA), 0.5, 2);
  EXPECT_TRUE(at::allclose(zd.cpu(), at::baddbmm(z, x, y, 0.5, 2)));
  Tensor im = at::rand({2, 3, 8, 8}), w = at::rand({4, 3, 3, 3}), bias = at::rand({4});
  Tensor out = at::conv2d(im.cuda(), w.cuda(), bias.cuda());
  EXPECT_TRUE(at::allclose(out.cpu(), at::conv2d(im, w, bias)));
}

}  // namespace
}  // namespace fedhpc
