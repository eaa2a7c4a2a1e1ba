#include "engine/partial_file.hpp"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "fedhpc/core/error.hpp"

#include "engine/state_paths.hpp"

namespace fedhpc {

namespace {

const std::string kGroup = state_path(kPartial);

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // numbers that travel together

/// Writes the values of all ranks, one after the other, and how many each has.
template <typename T>
void write_all_ranks(Communicator& comm, const h5::Handle* group, const std::string& name,
                     const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor counts = comm.all_gather(at::full({1}, count, at::kLong));
  h5::Handle dataset;
  if (group != nullptr) {
    const auto counts_out = h5::create_dataset(
        *group, name + "_counts", h5::type_of<std::int64_t>(), {static_cast<hsize_t>(comm.size())});
    h5::write_all(counts_out, h5::type_of<std::int64_t>(), counts.data_ptr());
    dataset = h5::create_dataset(*group, name, h5::type_of<T>(),
                                 {static_cast<hsize_t>(counts.sum().item<std::int64_t>())});
  }
  hsize_t next = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto of_rank = counts[rank].item<std::int64_t>();
    for (std::int64_t first = 0; first < of_rank; first += kPiece) {
      const std::int64_t length = std::min(kPiece, of_rank - first);
      Tensor piece =
          at::empty({rank == comm.rank() ? length : 0}, c10::CppTypeToScalarType<T>::value);
      if (rank == comm.rank()) {
        std::copy_n(values.begin() + first, length, piece.template data_ptr<T>());
      }
      const Tensor arrived = comm.gather(piece, 0);
      if (!dataset) continue;
      h5::write_rows(dataset, h5::type_of<T>(), next, static_cast<hsize_t>(length),
                     arrived.data_ptr());
      next += static_cast<hsize_t>(length);
    }
  }
}

/// How many numbers each rank has, whose sum is that of the data set.
std::vector<std::int64_t> checked_counts(const h5::Handle& file, const std::string& name,
                                         const std::string& path) {
  const auto counts = h5::read_vector<std::int64_t>(file, name + "_counts");
  const auto all = static_cast<std::int64_t>(h5::shape_of(h5::open_dataset(file, name)).at(0));
  const bool sound =
      std::ranges::all_of(counts, [&](std::int64_t count) { return count >= 0 && count <= all; });
  if (sound && std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == all) return counts;
  throw DataError(concat("checkpoint '", path, "' cannot be used: '", name,
                         "' is not of as many numbers as it says; go on from a checkpoint before "
                         "it"));
}

/// This rank's part of what write_all_ranks() wrote; rank 0 knows how many numbers each has.
template <typename T>
std::vector<T> read_own(Communicator& comm, const h5::Handle* file, const std::string& name,
                        const std::vector<std::int64_t>& of_ranks) {
  Tensor counts = at::full({comm.size()}, 0, at::kLong);
  std::copy(of_ranks.begin(), of_ranks.end(), counts.data_ptr<std::int64_t>());
  h5::Handle dataset;
  if (file != nullptr) dataset = h5::open_dataset(*file, name);
  comm.broadcast_(counts, 0);
  std::vector<T> own;
  hsize_t next = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto of_rank = counts[rank].item<std::int64_t>();
    for (std::int64_t first = 0; first < of_rank; first += kPiece) {
      const std::int64_t length = std::min(kPiece, of_rank - first);
      Tensor piece = at::empty({length}, c10::CppTypeToScalarType<T>::value);
      if (dataset) {
        h5::read_rows(dataset, h5::type_of<T>(), next, static_cast<hsize_t>(length),
                      piece.data_ptr());
      }
      next += static_cast<hsize_t>(length);
      comm.broadcast_(piece, 0);
      if (rank != comm.rank()) continue;
      const T* values = piece.template const_data_ptr<T>();
      own.insert(own.end(), values, values + length);
    }
  }
  return own;
}

}  // namespace

std::optional<PackedRound> pack_partial(const PartialRound* round) {
  return round == nullptr ? std::nullopt : std::optional(pack(*round));
}

std::int64_t bytes_of(const std::optional<PackedRound>& round, Communicator& comm) {
  if (!round) return 0;
  Tensor bytes =
      at::full({1}, 8 * (std::ssize(round->integers) + std::ssize(round->numbers)), at::kLong);
  comm.sum_(bytes);
  return bytes.item<std::int64_t>();
}

void write_partial(Communicator& comm, const h5::Handle* file,
                   const std::optional<PackedRound>& round) {
  if (!round) return;
  h5::Handle group;
  if (file != nullptr) group = h5::create_group(*file, kGroup);
  const h5::Handle* open = file != nullptr ? &group : nullptr;
  write_all_ranks(comm, open, "integers", round->integers);
  write_all_ranks(comm, open, "numbers", round->numbers);
}

bool holds_partial(const h5::Handle& file) { return h5::exists(file, kGroup); }

std::unique_ptr<PartialRound> read_partial(Communicator& comm, const h5::Handle* file,
                                           const std::string& path) {
  std::vector<std::int64_t> integers, numbers;  // of each rank; on rank 0
  bool there = false;
  fail_together(comm, [&] {
    if (file == nullptr || !h5::exists(*file, kGroup)) return;
    there = true;
    integers = checked_counts(*file, kGroup + "/integers", path);
    numbers = checked_counts(*file, kGroup + "/numbers", path);
    const auto ranks = static_cast<int>(integers.size());
    if (ranks != comm.size() || numbers.size() != integers.size()) {
      throw DataError(concat("checkpoint '", path, "' was written inside a round on ", ranks,
                             " ranks, here are ", comm.size(), "; go on with ", ranks,
                             " ranks, or from a checkpoint before it"));
    }
  });
  Tensor found = at::full({1}, there ? 1 : 0, at::kLong);
  comm.broadcast_(found, 0);
  if (found.item<std::int64_t>() == 0) return nullptr;
  PackedRound packed{.integers = read_own<std::int64_t>(comm, file, kGroup + "/integers", integers),
                     .numbers = read_own<double>(comm, file, kGroup + "/numbers", numbers)};
  std::unique_ptr<PartialRound> round;
  fail_together(comm, [&] {
    try {
      round = std::make_unique<PartialRound>(unpack(packed));
    } catch (const DataError& error) {
      throw DataError(concat("checkpoint '", path, "' cannot be used: ", error.what(),
                             "; go on from a checkpoint before it"));
    }
  });
  return round;
}

}  // namespace fedhpc
