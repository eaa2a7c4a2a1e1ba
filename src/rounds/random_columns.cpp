#include "fedhpc/rounds/random_columns.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/zeros.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

RandomColumns::RandomColumns(std::uint64_t seed, double fraction, LayoutPtr layout)
    : seed_(seed), layout_(std::move(layout)) {
  for (const auto& [begin, end] : layout_->ranges(Tag::Trainable)) {
    for (std::int64_t i = begin; i < end; ++i) trainable_.push_back(i);
  }
  const auto all = static_cast<double>(trainable_.size());
  chosen_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(fraction * all + 0.5)));
}

Tensor RandomColumns::draw(std::span<const std::int64_t> clients, std::int64_t round,
                           Direction direction) const {
  Tensor sent = at::zeros({static_cast<std::int64_t>(clients.size()), layout_->size()}, at::kBool);
  for (const auto& [begin, end] : layout_->ranges(Tag::Buffer)) {
    sent.narrow(1, begin, end - begin).fill_(true);
  }
  bool* row = sent.data_ptr<bool>();
  for (const std::int64_t client : clients) {
    const DrawKey key{.seed = seed_,
                      .purpose = Purpose::Codec,
                      .pass = direction == Direction::Down ? 0U : 1U,
                      .client = static_cast<std::uint64_t>(client),
                      .round = static_cast<std::uint64_t>(round)};
    const auto all = static_cast<std::int64_t>(trainable_.size());
    const std::vector<std::uint8_t> travels = random_subset(key, all, chosen_);
    for (std::size_t i = 0; i < travels.size(); ++i) row[trainable_[i]] = travels[i] != 0;
    row += layout_->size();
  }
  return sent;
}

std::int64_t RandomColumns::payload_bytes(at::ScalarType type) const {
  return (chosen_ + layout_->count(Tag::Buffer)) *
             static_cast<std::int64_t>(c10::elementSize(type)) +
         kSeedBytes;
}

double RandomColumns::inverse_fraction() const {
  return static_cast<double>(trainable_.size()) / static_cast<double>(chosen_);
}

}  // namespace fedhpc
