#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "fixtures/device.hpp"
#include "fixtures/device_passes.hpp"
#include "reference/nets.hpp"

// Families of models on a device against the same on the host.
namespace fedhpc::testing {
namespace {

class DeviceModels : public DeviceTest, public ::testing::WithParamInterface<std::string> {};

std::vector<std::int64_t> samples_for(const std::string& name) {
  if (name == "mlr" || name == "mlr_sigmoid" || name == "dnn") return {1, 2, 4};
  if (name == "cnn2") return {2, 9, 8};
  if (name == "cnn4" || name == "cnn8") return {2, 16, 17};
  if (name == "resnet9" || name == "resnet18") return {2, 8, 8};
  if (name == "lstm_leaf" || name == "transformer") return {6};
  return {2, 32, 32};
}

TEST_P(DeviceModels, AreAsOnTheHost) {
  ModelOptions options;
  options.name = GetParam();
  options.hidden = {6, 5};
  // At least two channels: for one in a group LibTorch has kernels on GPUs alone.
  options.width = options.name == "cnn2" ? 0.25 : options.name == "vgg_sfedhp" ? 0.125 : 0.0625;
  options.embedding = 8;
  options.units = 5;
  options.feed_forward = 9;
  const auto shape = samples_for(options.name);
  for (const NormChoice norm : {NormChoice::Auto, NormChoice::None, NormChoice::Group}) {
    options.norm = norm;
    if (norm == NormChoice::Group) options.width *= 2;  // two groups of each number of channels
    options.bias = norm == NormChoice::None ? BiasChoice::True : BiasChoice::Auto;
    if (shape.back() < 8 && norm != NormChoice::Auto) continue;
    const auto model =
        make_model(options, shape, {4, options.name == "transformer" ? shape[0] : 1});
    PassStart start = start_of(*model);
    if (shape.size() == 1) start.input = at::randint(4, start.input.sizes(), at::kDouble);
    const auto expect = [&](const char* way, const PassSetting& setting) {
      SCOPED_TRACE(concat(way, ' ', title(setting)));
      const ForcedConvolution forced(way);
      expect_equal_passes(*model, start, setting, setting.type == at::kDouble ? 1e-9 : 1e-4);
    };
    for (const PassSetting& setting : pass_settings()) {
      // Batch norm over few values makes much of float32's rounding: layers alone are compared.
      if (setting.type == at::kDouble || setting.use == Use::Evaluation)
        expect("unfolded", setting);
    }
    for (const char* way : {"loop", "grouped"}) expect(way, {.sink = PassSink::Descent});
    if (norm == NormChoice::Auto) expect("", {.sink = PassSink::Descent});  // as measured
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, DeviceModels, ::testing::ValuesIn(families_with_reference()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
