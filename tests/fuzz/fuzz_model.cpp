#include <string_view>

#include "fedhpc/models/description.hpp"
#include "fedhpc/models/model.hpp"

#include "fuzz/harness.hpp"

// Lines of a model file (docs/model-files.md), one after the other: whatever they are, they are
// refused, or make a model. Its weights and activations are not allocated.

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fedhpc;
  return fuzz::read(data, size, [](std::span<const std::uint8_t> bytes) {
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    ModelDescription description;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      description.add(line_of(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    const std::unique_ptr<Model> model = build_model(description, "x");
    fuzz::expect(model->layout()->size() >= 0 && model->classes() > 0);
  });
}
