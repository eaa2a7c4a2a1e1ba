#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/range.hpp"
#include "fedhpc/core/registry.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// What a compressor has to know of a payload beside its numbers.
struct PayloadFit {
  /// The columns of each tensor that is compressed, rising; all others arrive as they are. None: the
  /// whole row is one tensor.
  std::optional<ColumnRanges> tensors = {};
  std::vector<std::int64_t> heights =
      {};                  ///< of each tensor as a matrix [height, rest]; none: rows
  std::uint64_t seed = 0;  ///< the first word of the keys of its draws
};

/// What a sender does about what a codec loses (docs/codecs.md).
enum class ErrorFeedback { None, Ef14, Ef21 };

/// Encodes payloads for the simulated wire. A payload is a row of n numbers of the run's type
/// (float32 or float64). Both ends know n and the type, so neither is sent. An encoding has no
/// header and is read back from its bytes, n and the type alone. Its bits are rounded up to bytes
/// once per payload, by kmeans twice.
///
/// A simulation needs the cost of a payload and what arrives, not the bytes. `transmit_` gives both
/// and `encoded_bytes` the cost without encoding; they agree with `encode` and `decode` exactly.
///
/// A row's numbers lie side by side, so that rows may be columns of wider ones. Rows may lie
/// anywhere; what is not in host memory is copied there and back, unless the codec is linear.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Returns the bytes on the wire of each row of `rows` [C, n]: [C]. Does not encode: one pass
  /// over the rows, but for kmeans, which sorts them.
  std::vector<std::int64_t> encoded_bytes(const Tensor& rows) const;

  /// Replaces every row of `rows` [C, n] by what its receiver reads: decode(encode(row)), bit for
  /// bit. Returns the bytes on the wire of each row as it was: [C]. Costs what encoded_bytes costs
  /// where the codec is lossless.
  std::vector<std::int64_t> transmit_(const Tensor& rows) const;

  /// The bytes on the wire of `row` [n], in host memory.
  std::vector<std::byte> encode(const Tensor& row) const;

  /// Fills `row` [n], in host memory, from its encoding. Throws Error for bytes that no row of n numbers becomes.
  void decode(std::span<const std::byte> bytes, const Tensor& row) const;

  /// True if what arrives is what was sent, bit for bit, -0 and NaN included.
  virtual bool lossless(at::ScalarType type) const = 0;

  /// True if the encoding is the row itself, number by number. Encodings then add up as rows do and
  /// may be summed as they are.
  virtual bool linear(at::ScalarType type) const = 0;

  /// Returns the codec for one payload, or null where nothing of `fit` matters to it.
  virtual std::unique_ptr<Codec> fitted(const PayloadFit& /*fit*/) const { return nullptr; }

  ErrorFeedback feedback() const { return feedback_; }
  void set_feedback(ErrorFeedback feedback) { feedback_ = feedback; }

  /// Which of a round's payloads the codec is of, where a method sends several on one link: each
  /// has draws and feedback of its own.
  std::int64_t channel() const { return channel_; }
  void set_channel(std::int64_t channel) { channel_ = channel; }

 private:
  ErrorFeedback feedback_ = ErrorFeedback::None;
  std::int64_t channel_ = 0;

  // One row.
  virtual std::int64_t row_bytes(std::span<const float> row) const = 0;
  virtual std::int64_t row_bytes(std::span<const double> row) const = 0;
  virtual std::int64_t transmit_row_(std::span<float> row) const = 0;
  virtual std::int64_t transmit_row_(std::span<double> row) const = 0;
  virtual std::vector<std::byte> encode_row(std::span<const float> row) const = 0;
  virtual std::vector<std::byte> encode_row(std::span<const double> row) const = 0;
  virtual void decode_row(std::span<const std::byte> bytes, std::span<float> row) const = 0;
  virtual void decode_row(std::span<const std::byte> bytes, std::span<double> row) const = 0;
};

/// The registry name of a codec, and its option.
struct CodecChoice {
  std::string name = "dense";
  std::int64_t k = 16;      ///< clusters of codec kmeans, 1 to 65536; others ignore it
  double fraction = 0.01;   ///< share of the columns that top_k and rand_k send
  std::int64_t levels = 7;  ///< s of codec qsgd, 1 to 32767
  std::int64_t rank = 2;    ///< r of codec power_sgd
  ErrorFeedback feedback = ErrorFeedback::None;

  /// What the payloads hold that a method sends with the codec.
  enum class Of {
    Changes,  ///< changes of a model
    Models    ///< whole models, which compressors would not leave standing
  };

  /// Declares SECTION.codec, with `help`, and the keys of single codecs; the members hold the
  /// defaults. Of::Models has no compressors of changes. `also` is a second key that names
  /// a codec with the same keys.
  void declare(OptionSet& options, const std::string& section, std::string help,
               Of payloads = Of::Changes, const std::string& also = {});
  /// Declares SECTION.error_feedback; for models without ef14, which would send sums of them.
  void declare_feedback(OptionSet& options, const std::string& section, Of payloads = Of::Changes);

  /// True of compressors, of whose payload most may be lost.
  bool compresses_changes() const;

  /// Throws ConfigError naming the nearest codec for an unknown name.
  std::unique_ptr<Codec> make() const;
};

/// Every codec.
Registry<std::unique_ptr<Codec>(const CodecChoice&)>& codec_registry();

/// Sends rows as they are, in the run's type.
const Codec& dense_codec();

}  // namespace fedhpc
