// data.name = hdf5: arrays of one HDF5 file.
//
//   /x_train [S, D], [S, H, W] or [S, C, H, W]   unsigned bytes: pixels; other numbers: float64
//   /y_train [S]                                 labels 0..K-1
//         or [S, ...]                            whole numbers: T of each sample
//         or [S], [S, ...] of floats             numbers of a regression
//   /label_train [S]                             labels 0..K-1 beside such targets, optional
//   /x_test, /y_test, /label_test                the official test set, optional
//   /client_train, /client_test                  the natural client of every sample, optional
//   /names/clients [N], /names/classes [K]       what they are called, texts, optional
//
// K is the attribute `classes` of the labels of training where it is there, else the largest label
// plus 1. [S, H, W] is one channel. Floats [S] that are all whole numbers from 0 are labels, unless
// there is /label_train or data.label_kind says what they are.

#include <algorithm>
#include <cmath>

#include "data/block_dataset.hpp"
#include "data/datasets.hpp"
#include "data/described_dataset.hpp"
#include "data/hdf5_input.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

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

/// The samples with their labels, which are moved out of `answers`.
template <typename T>
std::unique_ptr<Dataset> read_samples(const Input& input, bool tested, Answers& answers) {
  std::vector<RowBlock<T>> blocks;
  blocks.push_back(read_block<T>(input, "x_train"));
  const std::int64_t num_train = blocks.front().count;
  if (tested) blocks.push_back(read_block<T>(input, "x_test"));
  answers = read_answers(input, num_train, tested ? blocks.back().count : 0);
  return std::make_unique<BlockDataset<T>>(sample_shape(input, "x_train"), answers.classes,
                                           num_train, std::move(blocks), std::move(answers.labels));
}

/// Names of classes or clients, as many as there are; none where the file has none.
std::vector<std::string> read_names(const Input& input, const std::string& name,
                                    std::int64_t count) {
  if (!input.has(name)) return {};
  std::vector<std::string> names;
  try {
    names = h5::read_texts(input.file, name);
  } catch (const Error& error) {
    input.fail(name, error.what());
  }
  if (static_cast<std::int64_t>(names.size()) != count) {
    input.fail(name, "found ", names.size(), " names, expected ", count);
  }
  const auto other = std::find_if_not(names.begin(), names.end(), is_utf8);
  if (other != names.end()) input.fail(name, "found ", in_quotes(*other), ", which is not UTF-8");
  return names;
}

std::int64_t largest_of(const std::vector<std::int64_t>& numbers) {
  return numbers.empty() ? -1 : *std::max_element(numbers.begin(), numbers.end());
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
  check_pair("label_train", "label_test");
  if (tested) check_pair("label_test", "label_train");
  Answers answers;
  auto data = pixels ? read_samples<std::uint8_t>(input, tested, answers)
                     : read_samples<double>(input, tested, answers);
  Description description{.targets = std::move(answers.targets),
                          .target_classes = answers.target_classes};
  if (input.has("client_train") || input.has("client_test")) {
    check_pair("client_train", "client_test");
    description.clients = read_counts(input, "client_train", data->num_train(), "x_train");
    if (tested) {
      check_pair("client_test", "client_train");
      const auto more = read_counts(input, "client_test", data->num_test(), "x_test");
      description.clients.insert(description.clients.end(), more.begin(), more.end());
    }
  }
  const std::string offsets_name =
      input.has("partition") ? "partition/train_offsets" : "train_offsets";
  if (!description.clients.empty()) {
    description.client_names =
        read_names(input, "names/clients", largest_of(description.clients) + 1);
  } else if (input.has(offsets_name)) {
    const std::vector<hsize_t> offsets = input.shape(offsets_name);
    const auto clients = offsets.empty() ? 0 : static_cast<std::int64_t>(offsets.front()) - 1;
    description.client_names = read_names(input, "names/clients", clients);
  }
  if (data->classes() > 1) {
    description.class_names = read_names(input, "names/classes", data->classes());
  }
  return std::make_unique<DescribedDataset>(std::move(data), std::move(description));
}

}  // namespace

std::unique_ptr<Dataset> open_hdf5(const DataOptions& options) {
  const std::string& path = data_file(options);
  try {
    return read_file(
        {.file = h5::open_input(path), .path = path, .label_kind = options.label_kind});
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(concat("HDF5 file '", path, "' cannot be read: ", error.what(),
                           "; give a file with the arrays x_train and y_train"));
  }
}

}  // namespace fedhpc
