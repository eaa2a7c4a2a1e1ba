#include "engine/partial_file.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr const char* kGroup = "/state/partial";

template <typename T>
Tensor tensor_of(const std::vector<T>& values) {
  Tensor tensor =
      at::empty({static_cast<std::int64_t>(values.size())}, c10::CppTypeToScalarType<T>::value);
  std::copy(values.begin(), values.end(), tensor.data_ptr<T>());
  return tensor;
}

/// Writes the values of all ranks, one after the other, and how many each has.
template <typename T>
void write_all_ranks(Communicator& comm, const h5::Handle* group, const std::string& name,
                     const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor counts = comm.gather(at::full({1}, count, at::kLong), 0);
  const Tensor all = comm.gather(tensor_of(values), 0);
  if (group == nullptr) return;
  const auto write = [&](const std::string& one, h5::Type type, const Tensor& numbers) {
    const h5::Handle dataset =
        h5::create_dataset(*group, one, type, {static_cast<hsize_t>(numbers.numel())});
    if (numbers.numel() > 0) h5::write_all(dataset, type, numbers.data_ptr());
  };
  write(name, h5::type_of<T>(), all);
  write(name + "_counts", h5::type_of<std::int64_t>(), counts);
}

/// This rank's part of what write_all_ranks() wrote.
template <typename T>
std::vector<T> read_own(Communicator& comm, const h5::Handle* file, const std::string& name) {
  std::vector<std::int64_t> counts;
  std::vector<T> all;
  if (file != nullptr) {
    counts = h5::read_vector<std::int64_t>(*file, name + "_counts");
    all = h5::read_vector<T>(*file, name);
  }
  Tensor sizes = at::full({comm.size()}, 0, at::kLong);
  if (file != nullptr) std::copy(counts.begin(), counts.end(), sizes.data_ptr<std::int64_t>());
  comm.broadcast_(sizes, 0);
  const auto* of_rank = sizes.const_data_ptr<std::int64_t>();
  std::vector<T> own;
  auto next = all.begin();
  for (int rank = 0; rank < comm.size(); ++rank) {
    Tensor values = at::empty({of_rank[rank]}, c10::CppTypeToScalarType<T>::value);
    if (file != nullptr) {
      require(of_rank[rank] >= 0 && of_rank[rank] <= all.end() - next, "counts of all ranks");
      std::copy_n(next, of_rank[rank], values.template data_ptr<T>());
      next += of_rank[rank];
    }
    comm.broadcast_(values, 0);
    if (rank != comm.rank()) continue;
    const T* first = values.template const_data_ptr<T>();
    own.assign(first, first + values.numel());
  }
  return own;
}

}  // namespace

void write_partial(Communicator& comm, const h5::Handle* file, const PartialRound* round) {
  if (round == nullptr) return;
  const PackedRound packed = pack(*round);
  h5::Handle group;
  if (file != nullptr) group = h5::create_group(*file, kGroup);
  const h5::Handle* open = file != nullptr ? &group : nullptr;
  write_all_ranks(comm, open, "integers", packed.integers);
  write_all_ranks(comm, open, "numbers", packed.numbers);
}

bool holds_partial(const h5::Handle& file) { return h5::exists(file, kGroup); }

std::unique_ptr<PartialRound> read_partial(Communicator& comm, const h5::Handle* file,
                                           const std::string& path) {
  const std::string group = kGroup;
  bool there = false;
  fail_together(comm, [&] {
    if (file == nullptr || !h5::exists(*file, group)) return;
    there = true;
    const auto counts = h5::read_vector<std::int64_t>(*file, group + "/integers_counts");
    const auto numbers = h5::read_vector<std::int64_t>(*file, group + "/numbers_counts");
    const auto ranks = static_cast<int>(counts.size());
    if (ranks != comm.size() || numbers.size() != counts.size()) {
      throw DataError(concat("checkpoint '", path, "' was written inside a round on ", ranks,
                             " ranks, here are ", comm.size(), "; go on with ", ranks,
                             " ranks, or from a checkpoint before it"));
    }
  });
  Tensor found = at::full({1}, there ? 1 : 0, at::kLong);
  comm.broadcast_(found, 0);
  if (found.item<std::int64_t>() == 0) return nullptr;
  PackedRound packed{.integers = read_own<std::int64_t>(comm, file, group + "/integers"),
                     .numbers = read_own<double>(comm, file, group + "/numbers")};
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
