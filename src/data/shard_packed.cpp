// Guests, and samples as they are stored: packed for other ranks, and read there in place.

#include <algorithm>
#include <cstring>
#include <functional>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/data/shard.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kLine = 64;  // bytes; stacks begin at whole ones

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::int64_t rows_of(const SampleLists& lists, std::span<const std::int64_t> clients) {
  std::int64_t rows = 0;
  for (const std::int64_t client : clients) rows += lists.count(client);
  return rows;
}

std::int64_t by_client(const std::pair<std::int64_t, std::shared_ptr<const Shard>>& guest) {
  return guest.first;
}

std::int64_t row_bytes(const Tensor& values, std::int64_t width) {
  return static_cast<std::int64_t>(values.element_size()) * width;
}

}  // namespace

Shard::Stacks Shard::stacks(std::int64_t train_rows, std::int64_t test_rows) const {
  const std::int64_t target = row_bytes(train_.told(), targets_.count);
  const std::int64_t feature = row_bytes(train_.features, features_);
  Stacks places;
  places.test_targets = whole_lines(train_rows * target);
  places.train_features = places.test_targets + whole_lines(test_rows * target);
  places.test_features = places.train_features + whole_lines(train_rows * feature);
  places.end = places.test_features + whole_lines(test_rows * feature);
  return places;
}

Samples Shard::at(void* memory, std::int64_t targets, std::int64_t features,
                  std::int64_t rows) const {
  auto* start = static_cast<char*>(memory);
  std::vector<std::int64_t> shape = train_.told().sizes().vec();
  shape.front() = rows;
  const Tensor told = at::from_blob(start + targets, shape, train_.told().options());
  const Tensor x = at::from_blob(start + features, {rows, features_}, train_.features.options());
  return train_.targets.defined()
             ? Samples{.features = x, .labels = train_.labels.narrow(0, 0, 0), .targets = told}
             : Samples{.features = x, .labels = told};
}

std::int64_t Shard::packed_bytes(std::span<const std::int64_t> clients, Packed what) const {
  if (on_demand()) return 0;
  return stacks(rows_of(partition_->train, clients),
                what == Packed::All ? rows_of(partition_->test, clients) : 0)
      .end;
}

void Shard::pack(std::span<const std::int64_t> clients, void* memory, Packed what) const {
  if (on_demand()) return;
  const bool all = what == Packed::All;
  const Stacks places =
      stacks(rows_of(partition_->train, clients), all ? rows_of(partition_->test, clients) : 0);
  const auto copy = [](const Tensor& values, std::int64_t first, std::int64_t count, char*& to) {
    if (count == 0) return;
    const Tensor rows = values.narrow(0, first, count);
    std::memcpy(to, rows.const_data_ptr(), rows.nbytes());
    to += rows.nbytes();
  };
  auto* start = static_cast<char*>(memory);
  char* train_targets = start + places.train_targets;
  char* test_targets = start + places.test_targets;
  char* train_features = start + places.train_features;
  char* test_features = start + places.test_features;
  for (const std::int64_t client : clients) {
    copy(train_.told(), train_begin(client), train_count(client), train_targets);
    copy(train_.features, train_begin(client), train_count(client), train_features);
    if (!all) continue;
    copy(test_.told(), test_begin(client), test_count(client), test_targets);
    copy(test_.features, test_begin(client), test_count(client), test_features);
  }
}

Shard Shard::reading(std::vector<std::int64_t> clients, const void* memory, Packed what) const {
  require(partition_ != nullptr, "the server's samples stay where they are");
  Shard other = *this;
  other.guests_.clear();
  other.clients_ = std::move(clients);
  other.train_offsets_ = {0};
  other.test_offsets_ = {0};
  for (const std::int64_t client : other.clients_) {
    other.train_offsets_.push_back(other.train_offsets_.back() + partition_->train.count(client));
    const bool tested = what == Packed::All || on_demand();
    other.test_offsets_.push_back(other.test_offsets_.back() +
                                  (tested ? partition_->test.count(client) : 0));
  }
  if (on_demand()) return other;
  const Stacks places = stacks(other.train_rows(), other.test_rows());
  auto* start = const_cast<void*>(memory);  // a tensor has no read-only memory
  other.train_ = at(start, places.train_targets, places.train_features, other.train_rows());
  other.test_ = at(start, places.test_targets, places.test_features, other.test_rows());
  return other;
}

void Shard::load_into(const Dataset& dataset, std::span<const std::int64_t> ids,
                      Samples& into) const {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;  // of float64 features at a time
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(1, kBytes / (8 * features_)));
  std::vector<Tensor> labels;
  for (std::size_t first = 0; first < ids.size(); first += step) {
    const auto some = ids.subspan(first, std::min(step, ids.size() - first));
    const Samples read = load(dataset, some);
    const auto begin = static_cast<std::int64_t>(first);
    const auto count = static_cast<std::int64_t>(some.size());
    into.features.narrow(0, begin, count).copy_(read.features);
    Tensor told = into.told();
    told.narrow(0, begin, count).copy_(read.told());
    if (read.targets.defined()) labels.push_back(read.labels);
  }
  if (!labels.empty()) into.labels = at::cat(labels);
}

std::int64_t Shard::position(std::int64_t client) const {
  if (guest(client) == nullptr) return static_cast<std::int64_t>(index(client));
  const auto place = std::ranges::lower_bound(guests_, client, {}, by_client);
  return static_cast<std::int64_t>(clients_.size()) + (place - guests_.begin());
}

const Shard* Shard::guest(std::int64_t client) const {
  if (guests_.empty()) return nullptr;
  const auto place = std::ranges::lower_bound(guests_, client, {}, by_client);
  return place != guests_.end() && place->first == client ? place->second.get() : nullptr;
}

const Shard& Shard::of(std::int64_t client) const {
  const Shard* other = guest(client);
  return other == nullptr ? *this : *other;
}

void Shard::take_in_(std::vector<std::pair<std::int64_t, std::shared_ptr<const Shard>>> guests) {
  require(std::ranges::is_sorted(guests, std::less<>(), by_client), "guests have ascending ids");
  for (const auto& [client, samples] : guests) {
    require(!holds(client) && samples->holds(client), "a guest comes with its samples");
  }
  guests_ = std::move(guests);
}

}  // namespace fedhpc
