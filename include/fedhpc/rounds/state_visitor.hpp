#pragma once

#include <cstdint>
#include <string>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/edge_rows.hpp"

namespace fedhpc {

/// Walks over everything that a round passes to the next, by name. One walk, in the same order on
/// every rank, saves a checkpoint or restores it: each visit reads or replaces. Names are unique
/// and hold no '/'.
class StateVisitor {
 public:
  virtual ~StateVisitor() = default;

  /// Whether what is visited is replaced: what a method makes of its state has to be made anew.
  virtual bool restores() const { return false; }

  /// Visits numbers that are the same on every rank: float32, float64 or int64 on the CPU, defined.
  /// A restore may change the shape.
  virtual void tensor(const std::string& name, Tensor& values) = 0;
  /// Visits rows [n, P] that are the same on every rank; type and layout stay.
  virtual void rows(const std::string& name, Rows& rows) { tensor(name, rows.values); }
  /// Visits the models of all edges; those an edge's ranks share are the same on each of them.
  virtual void edges(const std::string& name, EdgeRows& models) = 0;
  /// Visits all that the clients of this rank keep. The names are the same on every rank; another
  /// number of ranks may have saved it.
  virtual void clients(ClientStore& store) = 0;

  void number(const std::string& name, double& value);
  void integer(const std::string& name, std::int64_t& value);
};

}  // namespace fedhpc
