#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/client_store.hpp"

namespace fedhpc {

/// Keeps batch norm's running statistics with the clients (train.buffers = local). They do not
/// travel. In a model that arrives at a client, its own statistics take their place, or those of
/// the initial model before it has trained.
class OwnBuffers {
 public:
  /// `initial` [1, P] is the initial model, which has such statistics.
  OwnBuffers(ClientStore& store, const Rows& initial);

  /// The columns that travel of rows of this layout: of models, of parts of them or of factors.
  const RowPart& travelling(const LayoutPtr& layout) { return parts_of(layout).travelling; }
  /// Puts the statistics of clients[c] into row c of `rows`.
  void put_(const Rows& rows, std::span<const std::int64_t> clients);
  /// Puts the statistics of the initial model into all of `rows`.
  void put_initial_(const Rows& rows);
  /// Returns the statistics in `rows`, to be stored.
  Rows of(const Rows& rows);
  StoredRows& stored() const { return stored_; }

 private:
  struct Parts {
    LayoutPtr layout;  // keeps it alive
    RowPart travelling;
    RowPart buffers;
  };
  const Parts& parts_of(const LayoutPtr& layout);

  StoredRows& stored_;
  std::map<const Layout*, Parts> parts_;
};

}  // namespace fedhpc
