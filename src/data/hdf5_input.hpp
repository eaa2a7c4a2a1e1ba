#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/data/options.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

/// The open file and its name for messages.
struct Input {
  h5::Handle file;
  std::string path;
  LabelKind label_kind = LabelKind::Auto;

  bool has(const std::string& name) const { return h5::exists(file, name); }
  std::vector<hsize_t> shape(const std::string& name) const {
    return h5::shape_of(h5::open_dataset(file, name));
  }
  template <typename... Parts>
  [[noreturn]] void fail(const std::string& name, const Parts&... parts) const {
    throw DataError(concat("HDF5 file '", path, "', data set '/", name, "': ", parts...));
  }
};

/// Throws DataError unless all numbers of a data set are there and fit into memory, each as a T.
template <typename T>
void check_values(const Input& input, const std::string& name) {
  try {
    const h5::Handle dataset = h5::open_dataset(input.file, name);
    h5::check_numbers(dataset, sizeof(T));
    h5::check_written(dataset);
  } catch (const Error& error) {
    input.fail(name, error.what());
  }
}

/// Returns a data set of `count` whole numbers from 0.
std::vector<std::int64_t> read_counts(const Input& input, const std::string& name,
                                      std::int64_t count, const std::string& of);

/// What a file says of its samples, training then test.
struct Answers {
  std::vector<std::int64_t> labels;  // [S]
  std::int64_t classes = 1;          // K of the labels
  Tensor targets{};                  // [S, T] int64 or float64; undefined: the labels
  std::int64_t target_classes = 0;   // of whole numbers, where the file says it
};

/// Reads labels and targets of so many training and test samples.
Answers read_answers(const Input& input, std::int64_t num_train, std::int64_t num_test);

}  // namespace fedhpc
