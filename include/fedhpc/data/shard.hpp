#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/data/augment.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/device_kernels.hpp"
#include "fedhpc/data/device_samples.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/preparation.hpp"

namespace fedhpc {

/// Standardises a pixel in float32: faster on vector units than a table.
struct PixelFormula {
  float scale = 1;
  float shift = 0;
  float divisor = 1;

  float operator()(float pixel) const { return (scale * pixel + shift) / divisor; }
};

/// Holds the samples of one rank's own clients, in host memory and, where clients train on one, on
/// a device. Training samples are stacked client by client in ascending order of id, and so are
/// test samples. Pixels are kept as bytes and standardised when they are gathered, with the value
/// computed in float64 and rounded to the dtype. Float data are kept in the dtype. Client ids are
/// those of the whole run.
///
/// Clients of other ranks may be trained beside the shard's own for a while: guests. Their samples
/// lie in packed memory, in which a shard of theirs reads them, or are made on demand as well.
///
/// A data set may make samples on demand. Where they are many, a shard holds only the clients'
/// counts. It reads samples, bit for bit the same, when they are asked for. `in_hand` gives their
/// training samples.
class Shard {
 public:
  /// Bytes of features that are held rather than made again where there is a choice. Every machine
  /// has them to spare, and making a sample may cost as much as training a small model on it.
  static constexpr std::int64_t kHeldBytes = std::int64_t{256} << 20;

  enum class Load { Now, Later };

  /// Takes these clients (ascending ids, any of the partition's). Throws ConfigError for a
  /// standardisation the data do not have. The shard is on demand where the data set allows it and
  /// it would hold more than `held_bytes` of features. Partition and, for a shard on demand, data
  /// set must outlive it. Later: load_() comes before anything else.
  Shard(const Dataset& dataset, const Partition& partition, std::vector<std::int64_t> clients,
        const Preparation& preparation, DType dtype, std::int64_t held_bytes = kHeldBytes,
        Load load = Load::Now);

  /// Reads the samples, into `memory` of packed_bytes(clients()) that outlives the shard where that
  /// is not null.
  void load_(const Dataset& dataset, void* memory = nullptr);

  /// Returns a shard whose one client, number 0, is the server. Its test samples are first to
  /// last - 1 of the official test set (counted within it).
  static Shard server(const Dataset& dataset, std::int64_t first, std::int64_t last,
                      const Preparation& preparation, DType dtype,
                      std::int64_t held_bytes = kHeldBytes);

  /// The ids of the shard's clients, ascending.
  const std::vector<std::int64_t>& clients() const { return clients_; }
  bool holds(std::int64_t client) const;
  /// The client's place in clients(), behind which guests follow. Precondition: it is one of them.
  std::int64_t position(std::int64_t client) const;
  std::int64_t features() const { return features_; }  ///< D
  DType dtype() const { return dtype_; }
  const Targets& targets() const { return targets_; }
  std::int64_t classes() const { return classes_; }  ///< of the labels
  /// The targets of a sample as batches carry them: int64, or the dtype where they are numbers.
  at::ScalarType target_type() const {
    return targets_.kind == Targets::Kind::Numbers ? scalar_type(dtype_) : at::kLong;
  }
  /// The change a trainer makes to the images of its batches (by way of `crops` below).
  Augment augment() const { return preparation_.augment; }

  std::int64_t train_count(std::int64_t client) const;
  std::int64_t test_count(std::int64_t client) const;
  /// The client's first row in the stack of all.
  std::int64_t train_begin(std::int64_t client) const { return train_offsets_[index(client)]; }
  std::int64_t test_begin(std::int64_t client) const { return test_offsets_[index(client)]; }
  std::int64_t train_rows() const { return train_offsets_.back(); }
  std::int64_t test_rows() const { return test_offsets_.back(); }

  /// True if samples are read when they are asked for.
  bool on_demand() const { return source_ != nullptr; }
  /// The most training samples of a client of the partition: of any that may be trained here.
  std::int64_t largest_client() const { return largest_client_; }
  /// Returns a shard that holds the training samples (no test samples) of some clients of a shard
  /// on demand, guests among them, given by ascending ids. Costs making them.
  Shard in_hand(std::vector<std::int64_t> clients) const;
  /// Which samples of a client are packed.
  enum class Packed { Training, All };

  /// The bytes that the samples of some clients of any rank take as they are stored: ascending ids.
  std::int64_t packed_bytes(std::span<const std::int64_t> clients, Packed what = Packed::All) const;
  /// Packs the samples of some of the shard's clients, ascending ids, into memory of so many bytes.
  void pack(std::span<const std::int64_t> clients, void* memory, Packed what = Packed::All) const;
  /// Returns a shard that reads packed samples of clients of any rank in place, or makes them where
  /// this one is on demand; `memory` is null then, else it outlives that shard. Without labels
  /// beside targets.
  Shard reading(std::vector<std::int64_t> clients, const void* memory,
                Packed what = Packed::All) const;

  /// Takes in guests in the place of those before: for each the shard that has its samples,
  /// ascending ids. Counts and gather_train() are then for guests as well.
  void take_in_(std::vector<std::pair<std::int64_t, std::shared_ptr<const Shard>>> guests);
  /// The shard that has a client's samples: this one, or the guest's.
  const Shard& of(std::int64_t client) const;

  /// Counts the samples of each label, training and test together: [K]. On demand it makes them.
  std::vector<std::int64_t> label_histogram(std::int64_t client) const;
  std::int64_t memory_bytes() const;

  /// Gathers batches on `device` as well from now on, from a copy of the samples there. Samples
  /// made on demand go by way of the host. Does nothing for a device that is the host.
  void use_device_(at::Device device);
  at::Device device() const { return device_; }

  /// Gathers a whole block's batches on the device. features[c, b] and targets[c, b] become the
  /// training sample that `picks` names for step `*step`; see DeviceGather. Enqueued. Precondition:
  /// use_device_().
  void gather_planned(const Tensor& picks,           // [S, C', B', 3] int64: DevicePick
                      const Tensor& step,            // [1] int64
                      const Tensor& features,        // [C, B, D] of the dtype
                      const Tensor& targets) const;  // [C, B] or [C, B, T] of target_type()

  /// Gathers row c of a block: features[c, b] = the standardised training sample at position b of
  /// `positions` in the client's list, targets[c, b] its label or targets. Costs one pass over
  /// B x D numbers, no allocation. With `crops`, one for each position, the raw image is cropped
  /// first (precondition: images in pixels). Not for a shard on demand.
  void gather_train(std::int64_t client, std::span<const std::int64_t> positions, std::int64_t c,
                    const Tensor& features,  // [C, >= B, D] of the dtype
                    const Tensor& targets,   // [C, >= B] or [C, >= B, T] of target_type()
                    std::span<const Crop> crops = {}) const;
  /// Gathers rows row_begin to row_end - 1 of the stacked test samples: standardised into features
  /// [..., D], labels or targets into targets [>= row_end - row_begin, ...] of target_type(),
  /// contiguous. Both are in host memory or both on the device. On demand it costs making them.
  void gather_test(std::int64_t row_begin, std::int64_t row_end, const Tensor& features,
                   const Tensor& targets) const;

 private:
  /// Makes a shard without samples yet.
  Shard(const Dataset& dataset, const Preparation& preparation, DType dtype);

  /// True if features of so many samples like those of train_ are too much to hold.
  bool exceeds(std::int64_t rows, std::int64_t held_bytes) const;
  /// Returns the ids of these rows of the stacked test samples, for a shard on demand.
  std::vector<std::int64_t> test_ids(std::int64_t row_begin, std::int64_t row_end) const;

  /// The client's place in clients(). Precondition: the shard holds it.
  std::size_t index(std::int64_t client) const;
  Samples load(const Dataset& dataset, std::span<const std::int64_t> ids) const;
  /// Where packed samples lie.
  struct Stacks {
    std::int64_t train_targets = 0;  // bytes from the start
    std::int64_t test_targets = 0;
    std::int64_t train_features = 0;
    std::int64_t test_features = 0;
    std::int64_t end = 0;
  };
  Stacks stacks(std::int64_t train_rows, std::int64_t test_rows) const;
  /// Returns samples at these places of packed memory. Labels stay undefined beside targets.
  Samples at(void* memory, std::int64_t targets, std::int64_t features, std::int64_t rows) const;
  /// Loads samples some at a time into `into`.
  void load_into(const Dataset& dataset, std::span<const std::int64_t> ids, Samples& into) const;
  /// The guest's shard; null for the shard's own clients.
  const Shard* guest(std::int64_t client) const;
  std::shared_ptr<const DeviceSamples> on_device(const Samples& samples) const;
  /// Checks that batches' targets fit these tensors.
  void check_targets(const Tensor& targets) const;
  template <typename T>
  void standardise(const std::uint8_t* pixels, T* out) const;
  template <typename T>
  void copy_row(const Samples& source, std::int64_t row, T* out) const;

  DType dtype_;
  Preparation preparation_;
  std::int64_t features_;
  ImageShape image_;  // zeros for samples that are no images
  std::int64_t classes_;
  Targets targets_;
  std::vector<std::int64_t> clients_;           // ids, ascending
  std::vector<std::int64_t> train_offsets_{0};  // [clients + 1]
  std::vector<std::int64_t> test_offsets_{0};   // [clients + 1]
  Samples train_;                               // features [train_rows, D] uint8 or dtype
  Samples test_;                                // features [test_rows, D] uint8 or dtype
  const Partition* partition_ = nullptr;        // null: the server's
  std::int64_t largest_client_ = 1;
  std::vector<std::pair<std::int64_t, std::shared_ptr<const Shard>>> guests_;  // ascending
  // A shard on demand has these; its train_ and test_ are empty:
  const Dataset* source_ = nullptr;
  std::int64_t first_test_ = 0;  // the server's first sample
  // The rules none, unit and half use these, the same in all columns:
  PixelFormula formula_;             // float32; equals table_ rounded, which is checked
  std::array<double, 256> table_{};  // float64
  at::Device device_ = at::kCPU;
  // Set where the device is not the host; copies of a shard share them, having the same samples.
  std::shared_ptr<const DeviceSamples> train_on_device_;
  std::shared_ptr<const DeviceSamples> test_on_device_;
};

}  // namespace fedhpc
