#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/client_store.hpp"

namespace fedhpc {

/// Batch norm's running statistics where they stay with the clients (train.buffers = local). They
/// do not travel: in a model that arrives at a client the client's own take their place, those of
/// the initial model before it has trained.
class OwnBuffers {
 public:
  /// `initial` [1, P]: the initial model, which has such statistics.
  OwnBuffers(ClientStore& store, const Rows& initial);

  /// What travels of rows of this layout, of models, of parts of them or of factors.
  const RowPart& travelling(const LayoutPtr& layout) { return parts_of(layout).travelling; }
  /// The statistics in row c of `rows` become those of clients[c].
  void put_(const Rows& rows, std::span<const std::int64_t> clients);
  /// The statistics in all of `rows` become those of the initial model.
  void put_initial_(const Rows& rows);
  /// Those in `rows`, to be stored.
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
