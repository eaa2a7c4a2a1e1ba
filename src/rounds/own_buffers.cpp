#include "fedhpc/rounds/own_buffers.hpp"

#include <algorithm>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr Columns kBuffers{.with = Tag::Buffer};
constexpr Columns kTravelling{.without = Tag::Buffer};

}  // namespace

OwnBuffers::OwnBuffers(ClientStore& store, const Rows& initial)
    : stored_(store.rows("buffers", RowPart(initial.layout, kBuffers).of(initial))) {}

const OwnBuffers::Parts& OwnBuffers::parts_of(const LayoutPtr& layout) {
  const auto [found, is_new] = parts_.try_emplace(layout.get());
  if (is_new) {
    found->second = {.layout = layout,
                     .travelling = RowPart(layout, kTravelling),
                     .buffers = RowPart(layout, kBuffers)};
    const std::vector<Field>& own = found->second.buffers.layout()->fields();
    const std::vector<Field>& all = stored_.layout()->fields();
    const bool first = own.size() <= all.size() &&
                       std::equal(own.begin(), own.end(), all.begin(),
                                  [](const Field& a, const Field& b) { return a.name == b.name; });
    if (!first) {
      throw Error(
          concat("train.buffers = local serves models and their lower layers, and a payload "
                 "has the statistics of '",
                 own.front().name, "' without those below"));
    }
  }
  return found->second;
}

void OwnBuffers::put_(const Rows& rows, std::span<const std::int64_t> clients) {
  const Parts& parts = parts_of(rows.layout);
  if (parts.travelling.is_whole()) return;
  parts.buffers.put_(rows, {stored_.read(clients).values, parts.buffers.layout()});
}

void OwnBuffers::put_initial_(const Rows& rows) {
  const Parts& parts = parts_of(rows.layout);
  if (parts.travelling.is_whole()) return;
  parts.buffers.put_(rows, {stored_.initial().values, parts.buffers.layout()});
}

Rows OwnBuffers::of(const Rows& rows) {
  return {parts_of(rows.layout).buffers.of(rows).values, stored_.layout()};
}

}  // namespace fedhpc
