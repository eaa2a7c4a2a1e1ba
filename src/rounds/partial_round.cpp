#include "fedhpc/rounds/partial_round.hpp"

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// Takes values in the order of one walk.
class Packer {
 public:
  void integer(std::int64_t& value) { packed_.integers.push_back(value); }
  void number(double& value) { packed_.numbers.push_back(value); }
  void tensor(Tensor& values) {  // [a, b], or undefined
    std::int64_t rows = values.defined() ? values.size(0) : -1;
    std::int64_t columns = values.defined() ? values.size(1) : 0;
    integer(rows);
    integer(columns);
    if (rows < 0) return;
    std::int64_t single = values.scalar_type() == at::kFloat ? 1 : 0;
    integer(single);
    const Tensor host = on_host(values).to(at::kDouble).contiguous();
    const double* first = host.const_data_ptr<double>();
    packed_.numbers.insert(packed_.numbers.end(), first, first + host.numel());
  }
  PackedRound take() { return std::move(packed_); }

 private:
  PackedRound packed_;
};

/// Gives them back in the same walk.
class Unpacker {
 public:
  explicit Unpacker(const PackedRound& packed) : packed_(packed) {}

  void integer(std::int64_t& value) { value = next(packed_.integers, integers_); }
  void number(double& value) { value = next(packed_.numbers, numbers_); }
  void tensor(Tensor& values) {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    integer(rows);
    integer(columns);
    if (rows < 0) {
      values = Tensor();
      return;
    }
    std::int64_t single = 0;
    integer(single);
    const auto left = static_cast<std::int64_t>(packed_.numbers.size() - numbers_);
    if (columns < 0 || (columns > 0 && rows > left / columns)) throw broken();
    values = at::empty({rows, columns}, at::kDouble);
    for (std::int64_t i = 0; i < rows * columns; ++i) number(values.data_ptr<double>()[i]);
    if (single != 0) values = values.to(at::kFloat);
  }
  void finish() const {
    if (integers_ != packed_.integers.size() || numbers_ != packed_.numbers.size()) throw broken();
  }
  /// A length, of things that take at least one value each.
  std::size_t length(std::int64_t value) const {
    const std::size_t values = packed_.integers.size() + packed_.numbers.size();
    if (value < 0 || static_cast<std::size_t>(value) > values) throw broken();
    return static_cast<std::size_t>(value);
  }

 private:
  static DataError broken() {
    return DataError("its round under way is damaged, or of an earlier version");
  }
  template <typename T>
  static T next(const std::vector<T>& values, std::size_t& place) {
    if (place >= values.size()) throw broken();
    return values[place++];
  }

  const PackedRound& packed_;
  std::size_t integers_ = 0;
  std::size_t numbers_ = 0;
};

/// Sizes `values` as it was packed.
template <typename Values>
void walk_size(Packer& packer, Values& values) {
  auto size = static_cast<std::int64_t>(values.size());
  packer.integer(size);
}
template <typename Values>
void walk_size(Unpacker& unpacker, Values& values) {
  std::int64_t size = 0;
  unpacker.integer(size);
  values.resize(unpacker.length(size));
}

void walk(Packer& packer, bool& flag) {
  std::int64_t value = flag ? 1 : 0;
  packer.integer(value);
}
void walk(Unpacker& unpacker, bool& flag) {
  std::int64_t value = 0;
  unpacker.integer(value);
  flag = unpacker.length(value) == 1;
}

template <typename Walker>
void walk(Walker& walker, std::vector<std::int64_t>& values) {
  walk_size(walker, values);
  for (std::int64_t& value : values) walker.integer(value);
}

template <typename Walker>
void walk(Walker& walker, std::vector<double>& values) {
  walk_size(walker, values);
  for (double& value : values) walker.number(value);
}

template <typename Walker>
void walk(Walker& walker, SumContents& contents) {
  walker.tensor(contents.sums);
  walk_size(walker, contents.addends);
  for (SumContents::Addend& addend : contents.addends) {
    walk(walker, addend.segments);
    walk(walker, addend.weights);
    walker.tensor(addend.rows);
  }
}

template <typename Walker>
void walk(Walker& walker, PartialMean& mean) {
  walker.tensor(mean.result);
  if (mean.result.defined()) return;
  if (!mean.open) mean.open = std::make_shared<SumContents>();
  walk(walker, *mean.open);
}

template <typename Walker>
void walk(Walker& walker, TrainStatistics& statistics) {
  double loss = statistics.loss;
  walker.number(loss);
  statistics.loss = loss;
  double samples = statistics.samples;
  walker.number(samples);
  statistics.samples = samples;
  walker.number(statistics.gradient_values);
  walker.integer(statistics.gradients);
}

template <typename Walker>
void walk(Walker& walker, std::string& text) {
  walk_size(walker, text);
  for (char& letter : text) {
    auto value = static_cast<std::int64_t>(letter);
    walker.integer(value);
    letter = static_cast<char>(value);
  }
}

template <typename Walker>
void walk(Walker& walker, PartialRound& round) {
  walk(walker, round.evaluated);
  walker.integer(round.passes);
  walk(walker, round.done);
  walk_size(walker, round.means);
  for (PartialMean& mean : round.means) walk(walker, mean);
  auto entries = round.ledger.entries();
  for (std::int64_t& entry : entries) walker.integer(entry);
  round.ledger = Ledger(entries);
  walk(walker, round.times.clients);
  walk(walker, round.times.edges);
  walk(walker, round.times.slowest);
  walk(walker, round.times.edge_round_open);
  walk_size(walker, round.statistics);
  for (TrainStatistics& statistics : round.statistics) walk(walker, statistics);
  std::vector<std::pair<std::string, std::vector<double>>> notes(round.notes.begin(),
                                                                 round.notes.end());
  walk_size(walker, notes);
  for (auto& [name, values] : notes) {
    walk(walker, name);
    walk(walker, values);
  }
  round.notes = {notes.begin(), notes.end()};
}

}  // namespace

PackedRound pack(const PartialRound& round) {
  Packer packer;
  PartialRound copy = round;
  walk(packer, copy);
  return packer.take();
}

PartialRound unpack(const PackedRound& packed) {
  Unpacker unpacker(packed);
  PartialRound round;
  walk(unpacker, round);
  unpacker.finish();
  return round;
}

}  // namespace fedhpc
