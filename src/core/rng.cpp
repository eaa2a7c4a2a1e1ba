#include "fedhpc/core/rng.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr std::uint64_t kMultiplier0 = 0xD2E7470EE14C6C93ULL;
constexpr std::uint64_t kMultiplier1 = 0xCA5A826395121157ULL;
constexpr std::uint64_t kWeyl0 = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t kWeyl1 = 0xBB67AE8584CAA73BULL;
constexpr int kRounds = 10;

struct Product {
  std::uint64_t high;
  std::uint64_t low;
};

Product multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

}  // namespace

std::array<std::uint64_t, 4> philox4x64(std::array<std::uint64_t, 4> counter,
                                        std::array<std::uint64_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const Product first = multiply(kMultiplier0, counter[0]);
    const Product second = multiply(kMultiplier1, counter[2]);
    counter = {second.high ^ counter[1] ^ key[0], second.low, first.high ^ counter[3] ^ key[1],
               first.low};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

Draws::Draws(const DrawKey& key)
    : key_{key.seed, static_cast<std::uint64_t>(key.purpose)},
      counter_{0, key.pass << 32 | key.epoch, key.client, key.round} {}

std::uint64_t Draws::raw() {
  if (used_ == 4) {
    ++counter_[0];  // numpy counts up before it generates: blocks start at 1
    words_ = philox4x64(counter_, key_);
    used_ = 0;
  }
  return words_[static_cast<std::size_t>(used_++)];
}

void Draws::raw(std::span<std::uint64_t> words) {
  // Blocks side by side: a processor multiplies for one while another waits for its products.
  constexpr std::size_t kBlocks = 4;
  std::size_t w = 0;
  for (; used_ != 4 && w < words.size(); ++w) words[w] = raw();
  for (; w + 4 * kBlocks <= words.size(); w += 4 * kBlocks) {
    for (std::size_t b = 0; b < kBlocks; ++b) {
      ++counter_[0];
      const auto block = philox4x64(counter_, key_);
      std::copy(block.begin(), block.end(), words.begin() + static_cast<std::ptrdiff_t>(w + 4 * b));
    }
  }
  for (; w < words.size(); ++w) words[w] = raw();
}

double Draws::uniform() { return static_cast<double>(raw() >> 11) * 0x1.0p-53; }

double Draws::normal() {
  if (has_spare_normal_) {
    has_spare_normal_ = false;
    return spare_normal_;
  }
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
  const double angle = 2.0 * std::numbers::pi * uniform();
  spare_normal_ = radius * std::sin(angle);
  has_spare_normal_ = true;
  return radius * std::cos(angle);
}

double Draws::log_gamma(double alpha) {
  if (alpha >= 1) return std::log(gamma(alpha));
  const double boosted = std::log(gamma(alpha + 1));
  return boosted + std::log1p(-uniform()) / alpha;
}

double Draws::gamma(double alpha) {
  require(alpha > 0, "the shape of a gamma draw is positive");
  if (alpha < 1) {
    // Gamma(a) = Gamma(a + 1) U^(1/a)
    const double boosted = gamma(alpha + 1);
    return boosted * std::pow(1.0 - uniform(), 1.0 / alpha);
  }
  const double d = alpha - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = normal();
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    if (std::log1p(-uniform()) < 0.5 * x * x + d * (1.0 - v + std::log(v))) return d * v;
  }
}

std::int64_t Draws::below(std::int64_t n) {
  require(n > 0, "an integer is drawn from a non-empty range");
  return static_cast<std::int64_t>(uniform() * static_cast<double>(n));
}

namespace {

/// A word drawn for an entry, and the entry's number.
struct Drawn {
  std::uint64_t word;
  std::int64_t index;
};

/// Puts entries that lie near their places in order of their words; equal ones stay as they are.
void insert_in_order(std::vector<Drawn>& entries) {
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const Drawn entry = entries[i];
    std::size_t to = i;
    for (; to > 0 && entry.word < entries[to - 1].word; --to) entries[to] = entries[to - 1];
    entries[to] = entry;
  }
}

/// Uniform words fall by their first bits into buckets: of n words an entry or two into each, or 2^`most` buckets.
class Buckets {
 public:
  Buckets(std::size_t n, int most)
      : bits_(std::clamp(static_cast<int>(std::bit_width(n)), 1, most)) {}
  std::size_t count() const { return std::size_t{1} << bits_; }
  std::uint64_t operator()(std::uint64_t word) const { return word >> (64 - bits_); }

 private:
  int bits_;
};

}  // namespace

std::vector<std::int64_t> permutation_prefix(const DrawKey& key, std::int64_t n,
                                             std::int64_t length) {
  require(0 <= length && length <= n, "a permutation's prefix is not longer than it");
  std::vector<std::uint64_t> words(static_cast<std::size_t>(n));
  Draws(key).raw(words);
  const Buckets bucket_of(words.size(), 20);
  std::vector<std::int64_t> ends(bucket_of.count(), 0);
  for (const std::uint64_t word : words) ++ends[bucket_of(word)];
  std::int64_t held = 0;  // by the buckets that the prefix needs
  std::size_t buckets = 0;
  for (; held < length; ++buckets) held += std::exchange(ends[buckets], held);
  std::vector<Drawn> entries(static_cast<std::size_t>(held));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t bucket = bucket_of(words[i]);
    if (bucket >= buckets) continue;
    const auto place = static_cast<std::size_t>(ends[bucket]++);
    entries[place] = {words[i], static_cast<std::int64_t>(i)};
  }
  insert_in_order(entries);
  std::vector<std::int64_t> order(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = entries[i].index;
  return order;
}

std::vector<std::uint8_t> random_subset(const DrawKey& key, std::int64_t n, std::int64_t count) {
  require(0 <= count && count <= n, "a subset is not larger than the whole");
  std::vector<std::uint8_t> chosen(static_cast<std::size_t>(n), count == n ? 1 : 0);
  if (count == 0 || count == n) return chosen;
  std::vector<std::uint64_t> words(chosen.size());
  Draws(key).raw(words);
  // Only the bucket in which the last word of the subset lies is put in order.
  const Buckets bucket_of(words.size(), 11);
  std::vector<std::int64_t> held(bucket_of.count(), 0);
  for (const std::uint64_t word : words) ++held[bucket_of(word)];
  std::uint64_t last = 0;
  std::int64_t before = 0;
  while (before + held[last] < count) before += held[last++];
  std::vector<Drawn> entries;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (bucket_of(words[i]) == last) entries.push_back({words[i], static_cast<std::int64_t>(i)});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Drawn& a, const Drawn& b) { return a.word < b.word; });
  for (std::size_t i = 0; i < words.size(); ++i) chosen[i] = bucket_of(words[i]) < last ? 1 : 0;
  entries.resize(static_cast<std::size_t>(count - before));
  for (const Drawn& entry : entries) chosen[static_cast<std::size_t>(entry.index)] = 1;
  return chosen;
}

std::vector<std::int64_t> permutation(const DrawKey& key, std::int64_t n) {
  return permutation_prefix(key, n, n);
}

}  // namespace fedhpc
