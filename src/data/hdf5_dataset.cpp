// data.name = hdf5: arrays of one HDF5 file.
//
//   /x_train [S, D], [S, H, W] or [S, C, H, W]   unsigned bytes: pixels; other numbers: float64
//   /y_train [S]                                 labels 0..K-1
//   /x_test, /y_test                             the official test set, optional
//   /client_train, /client_test                  the natural client of every sample, optional
//
// K is the largest label plus 1. [S, H, W] is one channel.

#include <algorithm>
#include <cmath>

#include "fedhpc/io/hdf5.hpp"

#include "data/block_dataset.hpp"
#include "data/datasets.hpp"
#include "data/described_dataset.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kPlausibleLabels = 65536;  // in a file with fewer samples

/// The open file and its name for messages.
struct Input {
  h5::Handle file;
  std::string path;

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

/// A data set of `count` whole numbers from 0.
std::vector<std::int64_t> read_counts(const Input& input, const std::string& name,
                                      std::int64_t count, const std::string& of) {
  constexpr double kLargest = 2147483647;
  check_values<double>(input, name);
  const std::vector<double> numbers = h5::read_vector<double>(input.file, name);
  if (static_cast<std::int64_t>(numbers.size()) != count) {
    input.fail(name, "found ", numbers.size(), " entries, expected ", count, ", one for each of /",
               of);
  }
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!(numbers[i] >= 0 && numbers[i] <= kLargest && numbers[i] == std::floor(numbers[i]))) {
      input.fail(name, "found ", numbers[i], " at entry ", i, ", expected a whole number from 0");
    }
    counts.push_back(static_cast<std::int64_t>(numbers[i]));
  }
  return counts;
}

/// The shape of one sample, from that of the array.
std::vector<std::int64_t> sample_shape(const Input& input, const std::string& name) {
  const std::vector<hsize_t> shape = input.shape(name);
  if (shape.size() < 2 || shape.size() > 4 || *std::min_element(shape.begin(), shape.end()) == 0) {
    input.fail(name, "found ", shape.size(), " dimensions or an empty array, expected [samples, ",
               "features], [samples, height, width] or [samples, channels, height, width]");
  }
  std::vector<std::int64_t> sample(shape.begin() + 1, shape.end());
  if (sample.size() == 2) sample.insert(sample.begin(), 1);
  return sample;
}

template <typename T>
RowBlock<T> read_block(const Input& input, const std::string& name) {
  check_values<T>(input, name);
  const std::vector<hsize_t> shape = input.shape(name);
  std::size_t width = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  RowBlock<T> block{.values = std::vector<T>(shape[0] * width),
                    .stride = width,
                    .count = static_cast<std::int64_t>(shape[0])};
  h5::read_all(h5::open_dataset(input.file, name), h5::type_of<T>(), block.values.data());
  for (std::size_t i = 0; i < block.values.size(); ++i) {
    if (!std::isfinite(static_cast<double>(block.values[i]))) {
      input.fail(name, "found ", static_cast<double>(block.values[i]), " in sample ", i / width,
                 ", feature ", i % width, ", expected a finite number");
    }
  }
  return block;
}

template <typename T>
std::unique_ptr<Dataset> read_samples(const Input& input, bool tested) {
  std::vector<RowBlock<T>> blocks;
  blocks.push_back(read_block<T>(input, "x_train"));
  const std::int64_t num_train = blocks.front().count;
  std::vector<std::int64_t> labels = read_counts(input, "y_train", num_train, "x_train");
  if (tested) {
    blocks.push_back(read_block<T>(input, "x_test"));
    const auto more = read_counts(input, "y_test", blocks.back().count, "x_test");
    labels.insert(labels.end(), more.begin(), more.end());
  }
  const auto largest = std::max_element(labels.begin(), labels.end());
  const std::int64_t classes = *largest + 1;
  // A damaged label would ask for a layer of millions of outputs.
  if (*largest >= std::max<std::int64_t>(std::ssize(labels), kPlausibleLabels)) {
    const std::int64_t place = largest - labels.begin();
    const bool tests = place >= num_train;
    input.fail(tests ? "y_test" : "y_train", "found label ", *largest, " at entry ",
               tests ? place - num_train : place, " among ", labels.size(),
               " samples, expected labels 0 to K - 1; number the classes from 0");
  }
  if (classes < 2) input.fail("y_train", "found the label 0 only, expected at least two labels");
  return std::make_unique<BlockDataset<T>>(sample_shape(input, "x_train"), classes, num_train,
                                           std::move(blocks), std::move(labels));
}

std::unique_ptr<Dataset> read_file(const Input& input) {
  const auto check_pair = [&](const std::string& name, const std::string& other) {
    if (input.has(other) && !input.has(name)) {
      input.fail(name, "not found, expected because there is /", other);
    }
    return input.has(name);
  };
  for (const char* name : {"x_train", "y_train"}) {
    if (!input.has(name)) input.fail(name, "not found, expected an array of this name");
  }
  const bool tested = check_pair("x_test", "y_test") && check_pair("y_test", "x_test");
  const std::vector<std::int64_t> shape = sample_shape(input, "x_train");
  const bool pixels = h5::holds_bytes(h5::open_dataset(input.file, "x_train"));
  if (tested) {
    if (sample_shape(input, "x_test") != shape) {
      input.fail("x_test", "found samples of another shape than in /x_train, expected the same");
    }
    if (h5::holds_bytes(h5::open_dataset(input.file, "x_test")) != pixels) {
      input.fail("x_test", "found another number type than in /x_train, expected bytes in both or ",
                 "in none");
    }
  }
  auto data =
      pixels ? read_samples<std::uint8_t>(input, tested) : read_samples<double>(input, tested);
  if (!input.has("client_train") && !input.has("client_test")) return data;

  check_pair("client_train", "client_test");
  auto clients = read_counts(input, "client_train", data->num_train(), "x_train");
  if (tested) {
    check_pair("client_test", "client_train");
    const auto more = read_counts(input, "client_test", data->num_test(), "x_test");
    clients.insert(clients.end(), more.begin(), more.end());
  }
  return std::make_unique<DescribedDataset>(std::move(data),
                                            Description{.clients = std::move(clients)});
}

}  // namespace

std::unique_ptr<Dataset> open_hdf5(const DataOptions& options) {
  const std::string& path = data_file(options);
  if (!options.test_file.empty()) {
    throw ConfigError(
        concat("key 'data.test_file' cannot be '", options.test_file,
               "' with data.name = hdf5, whose test set is /x_test and /y_test of data.file; leave "
               "the key out"));
  }
  try {
    return read_file({.file = h5::open_input(path), .path = path});
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(concat("HDF5 file '", path, "' cannot be read: ", error.what(),
                           "; give a file with the arrays x_train and y_train"));
  }
}

}  // namespace fedhpc
