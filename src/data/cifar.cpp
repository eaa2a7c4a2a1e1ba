#include "data/cifar.hpp"

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::vector<std::uint8_t> parse_cifar(std::span<const std::uint8_t> bytes, const std::string& path,
                                      const CifarLabels& layout) {
  const std::size_t record = layout.size() + kCifarPixels;
  if (bytes.empty() || bytes.size() % record != 0) {
    throw DataError(concat("CIFAR file '", path, "', offset ", bytes.size(),
                           ": found the end of the file, expected records of ", record,
                           " bytes; fetch it again"));
  }
  std::vector<std::uint8_t> labels;
  labels.reserve(bytes.size() / record);
  for (std::size_t start = 0; start < bytes.size(); start += record) {
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (bytes[start + i] >= layout[i]) {
        throw DataError(concat("CIFAR file '", path, "', offset ", start + i, ": found label ",
                               int{bytes[start + i]}, ", expected 0 to ", layout[i] - 1,
                               "; is it the binary version?"));
      }
    }
    labels.push_back(bytes[start + layout.size() - 1]);
  }
  return labels;
}

}  // namespace fedhpc
