#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/shard.hpp"

#include "fixtures/temporary_folder.hpp"

namespace fedhpc::testing_support {

/// A variable of the environment that has its old value back at the end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  void set(const std::string& value) { setenv(name_, value.c_str(), 1); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

using Bytes = std::vector<std::uint8_t>;

inline void write_bytes(const std::string& path, const Bytes& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// An idx file: header for this shape, then `data`.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& shape, const Bytes& data,
                       std::uint8_t type = 8) {
  Bytes bytes{0, 0, type, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(size >> shift & 255));
    }
  }
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

/// The message of the E that `call` throws, or a failure and "".
template <typename E, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}

inline void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in '" << text << "'";
}

/// A data set with labels from a table; feature d of sample s is (7 s + d) mod 256, as a byte, or
/// that divided by 3 as float64.
class TableDataset : public Dataset {
 public:
  TableDataset(std::vector<std::int64_t> labels, std::int64_t num_train, std::int64_t classes,
               at::ScalarType type = at::kByte)
      : labels_(std::move(labels)), num_train_(num_train), classes_(classes), type_(type) {}

  std::vector<std::int64_t> shape() const override { return {5}; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return num_train_; }
  std::int64_t num_test() const override {
    return static_cast<std::int64_t>(labels_.size()) - num_train_;
  }
  std::vector<std::int64_t> labels() const override { return labels_; }

  static double value(std::int64_t id, std::int64_t d) {
    return static_cast<double>((7 * id + d) % 256);
  }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    read_ids.insert(read_ids.end(), ids.begin(), ids.end());
    Samples samples{at::empty({count, 5}, type_), at::empty({count}, at::kLong)};
    for (std::int64_t i = 0; i < count; ++i) {
      samples.labels.data_ptr<std::int64_t>()[i] = labels_.at(static_cast<std::size_t>(ids[i]));
      for (std::int64_t d = 0; d < 5; ++d) {
        const double number = value(ids[i], d);
        if (type_ == at::kByte) {
          samples.features.data_ptr<std::uint8_t>()[5 * i + d] = static_cast<std::uint8_t>(number);
        } else {
          samples.features.data_ptr<double>()[5 * i + d] = number / 3;
        }
      }
    }
    return samples;
  }

  mutable std::vector<std::int64_t> read_ids;  // all ids anybody asked for

 private:
  std::vector<std::int64_t> labels_;
  std::int64_t num_train_;
  std::int64_t classes_;
  at::ScalarType type_;
};

/// `each` samples of every class, labels 0, 1, ..., K-1, 0, 1, ...; the last fifth is official
/// test.
inline TableDataset balanced(std::int64_t classes, std::int64_t each) {
  std::vector<std::int64_t> labels;
  for (std::int64_t s = 0; s < classes * each; ++s) labels.push_back(s % classes);
  return {labels, classes * each - classes * each / 5, classes};
}

/// Samples gathered from a shard.
struct Batch {
  Tensor features;  // [1, B, D] of training samples, [B, D] of test samples
  Tensor labels;    // [1, B] or [B], or targets [1, B, T]
};

/// All samples of a data set, in their order.
inline Samples all_of(const Dataset& data) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(data.num_train() + data.num_test()));
  std::iota(ids.begin(), ids.end(), 0);
  return data.read(ids);
}

/// A client's training samples at these positions, in tensors of their own.
inline Batch gather(const Shard& shard, std::int64_t client,
                    const std::vector<std::int64_t>& positions) {
  const auto size = static_cast<std::int64_t>(positions.size());
  const std::int64_t targets = shard.targets().count;
  Batch batch{at::empty({1, size, shard.features()}, scalar_type(shard.dtype())),
              at::empty({1, size}, at::kLong)};
  if (targets > 1) batch.labels = at::empty({1, size, targets}, at::kLong);
  shard.gather_train(client, positions, 0, batch.features, batch.labels);
  return batch;
}

}  // namespace fedhpc::testing_support
