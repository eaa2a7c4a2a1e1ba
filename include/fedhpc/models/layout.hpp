#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/range.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// The lengths of a tensor's dimensions.
using Shape = std::vector<std::int64_t>;

/// The kinds of a column of a row. Tags are combined by |.
enum class Tag : std::uint32_t {
  None = 0,
  Trainable = 1,      ///< moved by gradients
  Buffer = 2,         ///< state that travels but has no gradient (batch-norm statistics)
  Head = 4,           ///< the classifier
  Norm = 8,           ///< a norm's scale and shift
  Uncompressed = 16,  ///< never factorised
  Bias = 32           ///< added to the sums of a layer, a norm's shift too
};

constexpr Tag operator|(Tag a, Tag b) {
  return static_cast<Tag>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr bool has(Tag tags, Tag tag) {
  return (static_cast<std::uint32_t>(tags) & static_cast<std::uint32_t>(tag)) != 0;
}

/// Selects columns of a row: all that carry `with`, or any for None, and nothing of `without`.
struct Columns {
  Tag with = Tag::None;
  Tag without = Tag::None;

  constexpr bool all() const { return with == Tag::None && without == Tag::None; }
  constexpr bool hold(Tag tags) const {
    return (with == Tag::None || has(tags, with)) && !has(tags, without);
  }
};

inline constexpr Columns kHead{.with = Tag::Head};     ///< the classifier
inline constexpr Columns kBody{.without = Tag::Head};  ///< what is below it

/// The initial value of a field in a row: a draw by model.init, or a constant. Embedding is a draw of
/// numbers of deviation 1, where model.init does not fix the deviation. Given has no rule: weights of a
/// file give it, and a row that is drawn has zeros.
enum class Initial { Drawn, Zero, One, Embedding, Given };

/// One parameter or buffer, with its columns in a row.
struct Field {
  std::string name;                 ///< PyTorch's name, e.g. "fc1.weight"
  std::vector<std::int64_t> shape;  ///< PyTorch's shape, e.g. {out, in}
  std::int64_t offset = 0;          ///< first column
  std::int64_t size = 0;            ///< number of columns
  std::int64_t fan_in = 0;          ///< inputs of one output unit, for the initialiser
  Tag tags = Tag::Trainable;
  Initial initial = Initial::Drawn;
  std::int64_t zero_row = -1;  ///< of an embedding, the row that starts at 0; -1: none
  std::size_t layer = 0;       ///< the number of its layer
};

/// Names every column of a row [P]: the parameters and buffers of one model, in PyTorch's order.
class Layout {
 public:
  /// Appends a field and returns its index. Names are unique and hold no '/'.
  std::size_t add(std::string name, std::vector<std::int64_t> shape, std::int64_t fan_in, Tag tags,
                  Initial initial = Initial::Drawn, std::int64_t zero_row = -1);
  /// Appends a field of another layout, of the layer that it has there.
  std::size_t add_copy(const Field& field);
  /// What is added from now on belongs to the next layer.
  void begin_layer() { ++layer_; }
  /// Says that a layer needs batches of two samples or more, as batch norm does.
  void set_needs_pairs(bool needs = true) { needs_pairs_ = needs; }
  bool needs_pairs() const { return needs_pairs_; }

  const std::vector<Field>& fields() const { return fields_; }
  const Field& field(const std::string& name) const;
  bool contains(const std::string& name) const;
  std::int64_t size() const { return size_; }  ///< P
  /// The columns that carry `tag`, of some or all; neighbouring fields joined.
  ColumnRanges ranges(Tag tag, const Columns& among = {}) const;
  /// Counts the columns that carry `tag`, of some or all.
  std::int64_t count(Tag tag, const Columns& among = {}) const;

 private:
  std::vector<Field> fields_;
  std::int64_t size_ = 0;
  std::size_t layer_ = 0;
  bool needs_pairs_ = false;
};

using LayoutPtr = std::shared_ptr<const Layout>;

/// The number of the field with which the `layers` top layers begin. A layer is one that holds a
/// matrix and is no norm (convolutions, linear and recurrent layers, embeddings), with its biases
/// and what follows it without one, as a norm does.
std::size_t first_of_top(const Layout& layout, std::int64_t layers);

/// Matrix [C, P] whose columns a Layout names. Copies share memory, as tensors do.
struct Rows {
  Tensor values;  // [C, P]
  LayoutPtr layout;

  std::int64_t count() const { return values.size(0); }
  Rows clone() const;
  /// Views rows [first, first + count), in the same memory.
  Rows narrow(std::int64_t first, std::int64_t count = 1) const {
    return {values.narrow(0, first, count), layout};
  }
  /// The rows at these places: in the same memory where the places follow each other, else copies
  /// of them, which put_() takes back.
  Rows at(std::span<const std::int64_t> places) const;
  /// The rows at these places become `rows`, which may be what at() gave.
  void put_(std::span<const std::int64_t> places, const Rows& rows) const;
  /// Returns C copies of a single row [1, P], in memory of their own (also for C = 1).
  Rows replicate(std::int64_t clients) const;
};

class RowNumbers;

/// Treats some columns of a layout as rows: the part of a model that travels, or stays with a
/// client.
class RowPart {
 public:
  RowPart() = default;
  RowPart(LayoutPtr whole, const Columns& columns);
  /// Takes the fields from number `first` on that hold `columns`.
  RowPart(LayoutPtr whole, std::size_t first, const Columns& columns);
  /// Returns the part of all other columns.
  RowPart rest() const;

  const LayoutPtr& layout() const { return layout_; }  ///< of Q columns
  bool is_whole() const { return layout_ == whole_; }
  /// Returns the part [C, Q] of rows [C, P]; the rows themselves where the part is the whole.
  Rows of(const Rows& rows) const;
  /// Sets the columns of `rows` [C, P] to `part` [C, Q], or to its one row [1, Q].
  void put_(const Rows& rows, const Rows& part) const;
  /// to[c] = from[c] + fa[c] a[c] + fb[c] b[c] on the part's columns, of rows `to` and `from` [C, P]
  /// and `a` and `b` [C, Q], row by row in one pass; the other columns of `to` become those of
  /// `from`.
  void add_two(const Rows& to, const Rows& from, const RowNumbers& fa, const Rows& a,
               const RowNumbers& fb, const Rows& b) const;

 private:
  struct Stretch {
    std::int64_t in_whole;
    std::int64_t in_part;
    std::int64_t columns;
  };

  /// Takes these fields, by their numbers.
  RowPart(std::vector<bool> taken, LayoutPtr whole);

  LayoutPtr whole_;
  LayoutPtr layout_;
  std::vector<bool> taken_;  // of the whole's fields
  std::vector<Stretch> stretches_;
};

Rows operator-(const Rows& a, const Rows& b);
Rows operator+(const Rows& a, const Rows& b);
Rows operator*(double factor, const Rows& rows);
Rows& operator+=(Rows& a, const Rows& b);

/// rows <- rows + share * (target - rows) on the trainable columns.
void approach_(const Rows& rows, const Rows& target, double share);

/// rows <- factor * rows on the columns that carry `tag`.
void scale_columns_(const Rows& rows, double factor, Tag tag);

/// Copies the columns that carry `tag` from `from`.
void copy_columns_(const Rows& rows, const Rows& from, Tag tag);

/// rows += factor * other on the columns of `layout` that carry `tag`; the others are not read.
void add_columns_(const Tensor& rows,   // [C, P]
                  const Tensor& other,  // [C, P]
                  double factor, const Layout& layout, Tag tag);

/// rows += factor * (a - b) on those columns. The difference is taken first: where a equals b
/// nothing is added, not even a rounding error.
void add_difference_(const Tensor& rows,                // [C, P]
                     const Tensor& a, const Tensor& b,  // [C, P]
                     double factor, const Layout& layout, Tag tag);

}  // namespace fedhpc
