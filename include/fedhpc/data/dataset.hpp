#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/core/registry.hpp"
#include "fedhpc/core/tensor.hpp"
#include "fedhpc/data/options.hpp"

namespace fedhpc {

/// Samples in memory, one row each.
struct Samples {
  Tensor features;   // [S, D] uint8 (raw pixels) or float64
  Tensor labels;     // [S] int64, 0..K-1
  Tensor targets{};  // [S, T] int64 or float64; undefined where the label is the target

  /// What a model is trained to tell: targets, or labels where there are none.
  const Tensor& told() const { return targets.defined() ? targets : labels; }
};

/// What a model is trained to tell of a sample.
struct Targets {
  enum class Kind {
    Label,    ///< the sample's label
    Whole,    ///< T whole numbers: classes of a sequence's places, or several yes or no
    Numbers,  ///< T numbers, of a regression
  };
  Kind kind = Kind::Label;
  std::int64_t count = 1;                 ///< T
  std::vector<std::int64_t> values = {};  ///< of whole numbers, the different ones, ascending
  std::int64_t classes = 0;               ///< of whole numbers, at least so many; 0: as they show
  double mean_square = 0;                 ///< of numbers, over all samples

  /// True where all values are 0 or 1, and no more classes are said to be.
  bool is_binary() const;
};

/// A source of samples, counted from 0: the official training set followed by the official test
/// set.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::vector<std::int64_t> shape() const = 0;  ///< of one sample, e.g. {1, 28, 28}
  virtual std::int64_t classes() const = 0;             ///< K; 1 where samples have no label
  virtual std::int64_t num_train() const = 0;           ///< official training samples
  virtual std::int64_t num_test() const = 0;  ///< official test samples, 0 when there are none
  /// True if samples are made when they are read, at little cost and from nothing kept. Nobody then
  /// has to hold them: see Shard.
  virtual bool on_demand() const { return false; }
  /// What a model is trained to tell. Where it is not the label, read() gives targets.
  virtual Targets targets() const { return {}; }
  /// Returns the label of every sample, training then test: [num_train + num_test].
  virtual std::vector<std::int64_t> labels() const = 0;
  /// Returns the samples `ids`, in that order (ids may repeat). Throws DataError naming file and
  /// offset.
  virtual Samples read(std::span<const std::int64_t> ids) const = 0;
  /// Returns the client of every sample, [num_train + num_test], for data made of natural clients;
  /// else an empty list.
  virtual std::vector<std::int64_t> natural_clients() const { return {}; }
  /// Returns the data's names of labels 0, 1, ..., [K]; empty where they have numbers only.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Returns the names of natural clients 0, 1, ... in the same way.
  virtual std::vector<std::string> client_names() const { return {}; }

  std::int64_t features() const;  ///< D, the product of shape()
};

/// Opens `data.name`. Throws ConfigError for options that do not fit it, DataError for a missing,
/// truncated, corrupt or mismatched file (naming file, offset and remedy). A plug-in's is checked.
std::unique_ptr<Dataset> open_dataset(const DataOptions& options);

/// Returns two digests of a dataset, 16 digits each. The first is that of its shape and sizes, all
/// labels, the mean square of all numbers that a regression tells, and 64 samples from the first to
/// the last. The second is that of all samples; of more than 256 MiB, of an even share of them. Empty
/// for samples made on demand: keys say what they are.
std::string digest_of(const Dataset& dataset);

/// Whether data with the digest `now` are those of a file that has `stored`, which earlier versions
/// wrote without its second half.
bool same_data(const std::string& stored, const std::string& now);

/// The folders into which this process has put unpacked copies of data files, for later runs.
std::vector<std::string> folders_of_copies();

/// Every data set: data.name.
Registry<std::unique_ptr<Dataset>(const DataOptions&)>& dataset_registry();

}  // namespace fedhpc
