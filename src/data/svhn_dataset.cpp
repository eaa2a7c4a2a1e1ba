// SVHN, cropped digits (ufldl.stanford.edu/housenumbers): X [32, 32, 3, S] column-major, y [S, 1]
// from 1 to 10, where 10 is the digit 0. The official sets train and test; not "extra".

#include <array>

#include "fedhpc/core/error.hpp"

#include "data/block_dataset.hpp"
#include "data/byte_source.hpp"
#include "data/datasets.hpp"
#include "data/mat.hpp"

namespace fedhpc {

namespace {

constexpr std::size_t kSide = 32;
constexpr std::size_t kPlane = kSide * kSide;
constexpr std::size_t kImage = 3 * kPlane;

/// Turns every channel from columns to rows, in place.
void transpose_images(RowBlock<std::uint8_t>& block) {
  for (std::int64_t i = 0; i < 3 * block.count; ++i) {
    std::uint8_t* plane = block.values.data() + block.first + static_cast<std::size_t>(i) * kPlane;
    for (std::size_t row = 0; row < kSide; ++row) {
      for (std::size_t column = 0; column < row; ++column) {
        std::swap(plane[row * kSide + column], plane[column * kSide + row]);
      }
    }
  }
}

/// Reads one file, appends its labels and returns its images.
RowBlock<std::uint8_t> read_file(const std::string& path, std::vector<std::int64_t>& labels) {
  std::vector<MatArray> arrays = parse_mat(read_bytes(path), path, {"X", "y"});
  MatArray& images = arrays[0];
  const MatArray& digits = arrays[1];
  const auto fail = [&](const auto&... parts) {
    throw DataError(concat("SVHN file '", path, "': found ", parts...,
                           "; get the cropped digits with 'tools/fetch_data.py svhn'"));
  };
  const std::vector<std::int64_t>& shape = images.shape;
  const bool four = shape.size() == 4 && shape[0] == 32 && shape[1] == 32 && shape[2] == 3;
  const bool one = shape.size() == 3 && shape[0] == 32 && shape[1] == 32 && shape[2] == 3;
  if (!four && !one) fail("X of another shape, expected 32 x 32 x 3 x samples");
  const std::int64_t count = one ? 1 : shape[3];  // MATLAB drops a last dimension of 1
  if (count == 0 || digits.size() != count) {
    fail(digits.size(), " labels in y, expected ", count,
         ", one for each image of X, at least one");
  }
  for (std::int64_t s = 0; s < count; ++s) {
    const int digit = digits.data()[s];
    if (digit < 1 || digit > 10) fail("label ", digit, " at entry ", s, " of y, expected 1 to 10");
    labels.push_back(digit % 10);
  }
  RowBlock<std::uint8_t> block{.values = std::move(images.bytes),
                               .first = images.data_offset,
                               .stride = kImage,
                               .count = count};
  transpose_images(block);
  return block;
}

}  // namespace

std::unique_ptr<Dataset> open_svhn(const DataOptions& options) {
  const std::string directory = data_directory(options);
  std::vector<RowBlock<std::uint8_t>> blocks;
  std::vector<std::int64_t> labels;
  for (const char* name : {"train_32x32.mat", "test_32x32.mat"}) {
    blocks.push_back(read_file(locate(directory, "svhn", name, options.name), labels));
  }
  const std::int64_t num_train = blocks.front().count;
  return std::make_unique<BlockDataset<std::uint8_t>>(
      std::vector<std::int64_t>{3, 32, 32}, 10, num_train, std::move(blocks), std::move(labels));
}

}  // namespace fedhpc
