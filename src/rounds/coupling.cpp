#include "fedhpc/rounds/coupling.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/to_device.hpp"

#include "rounds/coupling_kernels.hpp"

namespace fedhpc {

namespace {

std::int64_t columns_in(const ColumnRanges& ranges) {
  std::int64_t columns = 0;
  for (const auto& [begin, end] : ranges) columns += end - begin;
  return columns;
}

/// Columns first .. first + count of the chosen ones, side by side: [N_r, count].
Tensor chosen_columns(const Tensor& rows, const ColumnRanges& ranges, std::int64_t first,
                      std::int64_t count) {
  Tensor chosen = at::empty({rows.size(0), count}, rows.options());
  if (on_device(rows)) {
    std::int64_t before = 0;
    for (const auto& [begin, end] : ranges) {
      const std::int64_t low = std::max(first, before);
      const std::int64_t high = std::min(first + count, before + end - begin);
      if (low < high) {
        chosen.narrow(1, low - first, high - low)
            .copy_(rows.narrow(1, begin + low - before, high - low));
      }
      before += end - begin;
    }
    return chosen;
  }
  const auto size = static_cast<std::int64_t>(rows.itemsize());
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(chosen.data_ptr());
  std::int64_t passed = 0;  // chosen columns before this range
  for (const auto& [begin, end] : ranges) {
    const std::int64_t low = std::max(first, passed);
    const std::int64_t high = std::min(first + count, passed + end - begin);
    for (std::int64_t r = 0; r < rows.size(0) && low < high; ++r) {
      std::memcpy(to + (r * count + low - first) * size,
                  from + (r * rows.stride(0) + begin + low - passed) * size,
                  static_cast<std::size_t>((high - low) * size));
    }
    passed += end - begin;
  }
  return chosen;
}

/// Columns of a slab: whole tiles, so that the tiles are the same on any number of ranks.
std::int64_t slab_width(std::int64_t clients, std::size_t value_bytes) {
  const std::int64_t row_bytes = clients * static_cast<std::int64_t>(value_bytes);
  const std::int64_t tiles =
      Coupling::kSlabBytes / std::max<std::int64_t>(1, row_bytes * kPairTile);
  return std::max<std::int64_t>(1, tiles) * kPairTile;
}

}  // namespace

std::int64_t place_of(std::int64_t client, std::span<const std::int64_t> clients) {
  const auto place = std::ranges::lower_bound(clients, client);
  require(place != clients.end() && *place == client, "the client is one of those");
  return place - clients.begin();
}

Coupling::Coupling(Communicator& comm, std::span<const std::int64_t> ids) : comm_(comm) {
  const auto own = static_cast<std::int64_t>(ids.size());
  const Tensor count = at::full({1}, own, at::kLong);
  Tensor mine = at::empty({own}, at::kLong);
  std::copy(ids.begin(), ids.end(), mine.data_ptr<std::int64_t>());
  const Tensor counts = comm_.all_gather(count);
  const Tensor all = comm_.all_gather(mine);
  counts_.assign(counts.const_data_ptr<std::int64_t>(),
                 counts.const_data_ptr<std::int64_t>() + counts.numel());
  const auto* first = all.const_data_ptr<std::int64_t>();
  ids_.assign(first, first + all.numel());
  std::sort(ids_.begin(), ids_.end());
  require(std::adjacent_find(ids_.begin(), ids_.end()) == ids_.end(),
          "every client is on one rank and has one row");
  for (std::int64_t i = 0; i < all.numel(); ++i) positions_.push_back(place_of(first[i], ids_));
}

std::int64_t Coupling::most(std::int64_t own) const {
  Tensor number = at::full({1}, own, at::kLong);
  comm_.max_(number);
  return number.item<std::int64_t>();
}

std::int64_t Coupling::total(std::int64_t own) const {
  Tensor number = at::full({1}, own, at::kLong);
  comm_.sum_(number);
  return number.item<std::int64_t>();
}

std::span<const std::int64_t> Coupling::own_positions() const {
  const auto rank = static_cast<std::size_t>(comm_.rank());
  const auto before =
      std::accumulate(counts_.begin(), counts_.begin() + comm_.rank(), std::int64_t{0});
  return std::span(positions_)
      .subspan(static_cast<std::size_t>(before), static_cast<std::size_t>(counts_[rank]));
}

void Coupling::check(const Rows& rows) const {
  require(rows.values.dim() == 2 && rows.values.stride(1) == 1, "rows, their columns contiguous");
  require(rows.count() == counts_[static_cast<std::size_t>(comm_.rank())],
          "one row per client of this rank");
  require(rows.values.size(1) == rows.layout->size(), "rows fit their layout");
}

void Coupling::each_slab(const Tensor& rows, const ColumnRanges& columns,
                         const UseSlab& use) const {
  if (count() == 0) return;
  const std::int64_t total = columns_in(columns);
  const std::int64_t width = slab_width(count(), rows.itemsize());
  for (std::int64_t first = 0; first < total; first += width) {
    use(comm_.all_gather(chosen_columns(rows, columns, first, std::min(width, total - first))),
        first);
  }
}

Tensor Coupling::in_client_order(const Tensor& gathered) const {
  Tensor ordered = at::empty(gathered.sizes(), gathered.options());
  if (gathered.numel() == 0) return ordered;
  if (on_device(gathered)) {
    return ordered.index_copy_(0, to_device(positions_, gathered.device()), gathered);
  }
  const std::size_t bytes = gathered.nbytes() / positions_.size();
  const auto* from = static_cast<const char*>(gathered.const_data_ptr());
  auto* to = static_cast<char*>(ordered.data_ptr());
  for (std::size_t r = 0; r < positions_.size(); ++r) {
    std::memcpy(to + static_cast<std::size_t>(positions_[r]) * bytes, from + r * bytes, bytes);
  }
  return ordered;
}

Tensor Coupling::sum_over_pairs(PairTerm term, const Rows& a, const Rows& b,
                                const ColumnRanges& columns, const Rows& reference) const {
  check(a);
  check(b);
  require(a.layout == b.layout && a.values.scalar_type() == b.values.scalar_type() &&
              a.values.device() == b.values.device(),
          "rows of one layout and type are compared");
  for (const auto& [begin, end] : columns) {
    require(0 <= begin && begin <= end && end <= a.layout->size(), "columns lie inside the rows");
  }
  Tensor centre;  // [1, Q] float64
  if (reference.values.defined()) {
    require(reference.layout == a.layout && reference.count() == 1 &&
                reference.values.device() == a.values.device() &&
                reference.values.size(1) == a.layout->size(),
            "a reference is one such row");
    centre = chosen_columns(reference.values, columns, 0, columns_in(columns)).to(at::kDouble);
  }
  if (on_device(a.values)) return pairs_on_device(term, a, b, columns, centre);
  Tensor sums = at::zeros({a.count(), count()}, at::kDouble);
  std::vector<double> own;    // [N_r, kPairTile]
  std::vector<double> other;  // [N, kPairTile]
  each_slab(b.values, columns, [&](const Tensor& slab, std::int64_t first) {
    const Tensor left = chosen_columns(a.values, columns, first, slab.size(1));
    for (std::int64_t begin = 0; begin < slab.size(1); begin += kPairTile) {
      const std::int64_t width = std::min(kPairTile, slab.size(1) - begin);
      const double* minus =
          centre.defined() ? centre.const_data_ptr<double>() + first + begin : nullptr;
      pack_tile(left, begin, width, {}, minus, kPairTile, own);
      pack_tile(slab, begin, width, positions_, minus, kPairTile, other);
      add_pairs(term, own.data(), a.count(), other.data(), count(), sums.data_ptr<double>());
    }
  });
  return in_client_order(comm_.all_gather(sums));
}

Tensor Coupling::pairs_on_device(PairTerm term, const Rows& a, const Rows& b,
                                 const ColumnRanges& columns, const Tensor& centre) const {
  // Slabs in the order of clients and one client at a time: what a pair gets depends on neither the
  // ranks nor the other clients.
  const Tensor sums = at::zeros({a.count(), count()}, a.values.options().dtype(at::kDouble));
  each_slab(b.values, columns, [&](const Tensor& slab, std::int64_t first) {
    Tensor left = chosen_columns(a.values, columns, first, slab.size(1)).to(at::kDouble);
    Tensor right = in_client_order(slab).to(at::kDouble);
    if (centre.defined()) {
      const Tensor minus = centre.narrow(1, first, slab.size(1));
      left = left.sub(minus);
      right = right.sub(minus);
    }
    for (std::int64_t i = 0; i < a.count(); ++i) {
      sums[i].add_(term == PairTerm::Product ? right.mul(left[i]).sum(1)
                                             : right.sub(left[i]).square_().sum(1));
    }
  });
  return in_client_order(comm_.all_gather(on_host(sums)));
}

Rows Coupling::combine_on_device(MixTerm term, const Tensor& coefficients, const Rows& rows) const {
  const at::Device device = rows.values.device();
  struct Mixture {
    std::int64_t position;
    Tensor others;        // positions of clients whose coefficients are not 0
    Tensor coefficients;  // of them, [1, n]
  };
  std::vector<Mixture> mixtures;
  for (const std::int64_t position : own_positions()) {
    const double* row = coefficients.const_data_ptr<double>() + position * count();
    std::vector<std::int64_t> others;
    std::vector<double> factors;
    for (std::int64_t j = 0; j < count(); ++j) {
      if (row[j] == 0) continue;
      others.push_back(j);
      factors.push_back(row[j]);
    }
    mixtures.push_back(
        {position, to_device(others, device), to_device(factors, device).unsqueeze(0)});
  }
  Rows mixed{at::empty(rows.values.sizes(), rows.values.options()), rows.layout};
  each_slab(rows.values, {{0, rows.layout->size()}}, [&](const Tensor& slab, std::int64_t first) {
    const Tensor all = in_client_order(slab);
    for (std::size_t i = 0; i < mixtures.size(); ++i) {
      const Mixture& of = mixtures[i];
      const Tensor own = all.narrow(0, of.position, 1).to(at::kDouble);
      Tensor terms = all.index_select(0, of.others).to(at::kDouble);
      if (term == MixTerm::Difference) terms = terms.sub(own);
      Tensor sum = of.coefficients.mm(terms);
      if (term == MixTerm::Difference) sum = own + sum;
      mixed.values.narrow(0, static_cast<std::int64_t>(i), 1)
          .narrow(1, first, slab.size(1))
          .copy_(sum);
    }
  });
  return mixed;
}

Tensor Coupling::squared_distances(const Rows& a, const Rows& b,
                                   const ColumnRanges& columns) const {
  return sum_over_pairs(PairTerm::SquaredDifference, a, b, columns, {});
}

Tensor Coupling::dots(const Rows& a, const Rows& b, const ColumnRanges& columns,
                      const Rows& reference) const {
  return sum_over_pairs(PairTerm::Product, a, b, columns, reference);
}

Tensor Coupling::cosines(const Rows& a, const ColumnRanges& columns, const Rows& reference) const {
  const Tensor products = dots(a, a, columns, reference);
  const Tensor lengths = products.diagonal().sqrt();                     // [N]
  const Tensor scales = lengths.unsqueeze(1).mul(lengths.unsqueeze(0));  // [N, N]
  return products.div(scales.masked_fill(scales.eq(0), 1));
}

Rows Coupling::mix(const Tensor& coefficients, const Rows& rows) const {
  return combine(MixTerm::Row, coefficients, rows);
}

Rows Coupling::approach(const Tensor& shares, const Rows& rows) const {
  return combine(MixTerm::Difference, shares, rows);
}

Rows Coupling::combine(MixTerm term, const Tensor& coefficients, const Rows& rows) const {
  check(rows);
  require(coefficients.scalar_type() == at::kDouble && coefficients.is_contiguous() &&
              coefficients.dim() == 2 && coefficients.size(0) == count() &&
              coefficients.size(1) == count(),
          "mixing coefficients are [N, N] float64");
  if (on_device(rows.values)) return combine_on_device(term, coefficients, rows);
  std::vector<MixedClient> own;
  for (const std::int64_t position : own_positions()) {
    own.push_back({coefficients.const_data_ptr<double>() + position * count(), position});
  }
  Rows mixed{at::empty(rows.values.sizes(), rows.values.options()), rows.layout};
  std::vector<double> tile;  // [N, kMixTile]
  std::vector<double> sums;  // [N_r, kMixTile]
  each_slab(rows.values, {{0, rows.layout->size()}}, [&](const Tensor& slab, std::int64_t first) {
    for (std::int64_t begin = 0; begin < slab.size(1); begin += kMixTile) {
      const std::int64_t width = std::min(kMixTile, slab.size(1) - begin);
      pack_tile(slab, begin, width, positions_, nullptr, kMixTile, tile);
      mix_tile(term, own, tile, sums);
      with_type(rows.values.scalar_type(), [&]<typename T>() {
        for (std::size_t i = 0; i < own.size(); ++i) {
          T* out = mixed.values.data_ptr<T>() +
                   static_cast<std::int64_t>(i) * mixed.values.stride(0) + first + begin;
          const double* sum = sums.data() + i * kMixTile;
          for (std::int64_t k = 0; k < width; ++k) out[k] = static_cast<T>(sum[k]);
        }
      });
    }
  });
  return mixed;
}

}  // namespace fedhpc
