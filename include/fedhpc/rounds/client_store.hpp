#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/core/options.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/row_memory.hpp"

namespace fedhpc {

/// The `store.*` keys.
struct StoreOptions {
  std::optional<std::int64_t> device_budget;  ///< bytes; none: half of the device's free memory

  void declare(OptionSet& options);
};

/// The ids of the clients whose state one rank keeps; any ids, ascending. Guests, clients of other
/// ranks, may be among them for a while.
class OwnClients {
 public:
  explicit OwnClients(std::vector<std::int64_t> ids);

  const std::vector<std::int64_t>& ids() const { return ids_; }
  const std::vector<std::int64_t>& guests() const { return guests_; }
  std::int64_t count() const { return static_cast<std::int64_t>(ids_.size()); }
  /// Clients and guests.
  std::int64_t with_guests() const { return count() + static_cast<std::int64_t>(guests_.size()); }
  /// Returns a client's position in ids(), behind which guests follow. It must be one of them.
  std::size_t position(std::int64_t client) const;
  void set_guests(std::vector<std::int64_t> guests);  ///< ascending

 private:
  std::vector<std::int64_t> ids_;
  std::vector<std::int64_t> guests_;
};

/// Stores one row per client of this rank: personalized models, last updates, control variates.
/// They are read and written on the device of the initial row. A client never written reads the
/// initial row and takes no memory. Written rows lie in pieces of memory that grow with their
/// number, so that at most an eighth of them is spare.
class StoredRows {
 public:
  /// `initial` [1, P] gives the rows their layout and type.
  StoredRows(const OwnClients& clients, RowPlacement& placement, Rows initial);
  ~StoredRows() { clear(); }
  StoredRows(const StoredRows&) = delete;
  StoredRows& operator=(const StoredRows&) = delete;

  /// Returns the rows of `clients` in their order, in memory of their own; [C, P].
  Rows read(std::span<const std::int64_t> clients) const;
  /// A client never written reads `otherwise` instead: one row [1, P], or its own of [C, P].
  Rows read(std::span<const std::int64_t> clients, const Rows& otherwise) const;
  /// Returns the row of one client, [1, P], to be read only: in place if the initial row's device
  /// reads it there, else a copy. Valid until the next write.
  Rows view(std::int64_t client) const;
  /// The same of a single client, of several what read() gives.
  Rows view(std::span<const std::int64_t> clients) const;
  /// Calls work(some) with as many of these places at a time as rows are best gone through
  /// together: one in host memory, where a row then stays in the caches, elsewhere all.
  void each_portion(std::span<const std::int64_t> places,
                    const std::function<void(std::span<const std::int64_t>)>& work) const;
  /// Stores row c of `rows` [C, P] for clients[c]; for a client named twice the last row stays.
  void write(std::span<const std::int64_t> clients, const Rows& rows);
  bool written(std::int64_t client) const;
  std::vector<std::int64_t> written_clients() const;  ///< ascending
  /// Returns those of `clients` that are not written yet, in their order.
  std::vector<std::int64_t> unwritten(std::span<const std::int64_t> clients) const;
  /// Gives every client the initial row again, and the memory back.
  void clear();
  /// Gives one client the initial row again; the next one to be written takes its place.
  void forget(std::int64_t client);

  std::int64_t row_bytes() const { return row_bytes_; }
  /// Copies the row of a written client to `to`, row_bytes() of host memory at any address. Not on a
  /// device.
  void copy_out(std::int64_t client, void* to) const;
  /// Stores a client's row from such memory.
  void copy_in(std::int64_t client, const void* from);

  const Rows& initial() const { return initial_; }  ///< [1, P]
  const LayoutPtr& layout() const { return initial_.layout; }
  at::ScalarType type() const { return initial_.values.scalar_type(); }
  /// The bytes that the rows take, spare ones and the initial one included.
  StoreBytes memory_bytes() const;
  /// The bytes they take once every client is written.
  std::int64_t full_bytes() const { return (clients_.count() + 1) * row_bytes_; }

 private:
  /// A row lies at `offset` bytes of this piece.
  struct Place {
    std::size_t piece;
    std::int64_t offset;
  };

  Place place_of(std::int64_t slot) const;
  /// Calls work(first, count, place) for each stretch of clients whose rows lie side by side:
  /// clients[first] and the next ones. Clients never written get no place.
  template <typename Work>
  void each_stretch(std::span<const std::int64_t> clients, const Work& work) const;
  void read_on_device(std::span<const std::int64_t> clients, const Tensor& otherwise,
                      const Tensor& rows) const;
  std::int64_t slot_for(std::int64_t client);
  void grow();

  const OwnClients& clients_;
  RowPlacement& placement_;
  Rows initial_;  // [1, P]
  std::int64_t row_bytes_;
  std::map<std::int64_t, std::int64_t> slots_;  // of the written clients
  std::vector<RowPlacement::Piece> pieces_;
  std::vector<std::int64_t> first_slots_;  // of the pieces
  std::int64_t capacity_ = 0;              // slots
  std::vector<std::int64_t> free_slots_;   // of clients that were forgotten
};

/// One float64 number per client of this rank, in host memory. Takes none before the first write.
class ScalarColumn {
 public:
  ScalarColumn(const OwnClients& clients, double initial) : clients_(clients), initial_(initial) {}

  double read(std::int64_t client) const;
  std::vector<double> read(std::span<const std::int64_t> clients) const;
  void write(std::int64_t client, double value);
  void write(std::span<const std::int64_t> clients, std::span<const double> values);
  bool written(std::int64_t client) const;
  std::vector<std::int64_t> written_clients() const;  ///< ascending
  void clear();                                       ///< gives every client the initial number
  /// Makes places for the guests there are now, who have the initial number.
  void seat_guests();
  /// Copies a client's number to any address and back.
  void copy_out(std::int64_t client, void* to) const;
  void copy_in(std::int64_t client, const void* from);

  double initial() const { return initial_; }
  StoreBytes memory_bytes() const;
  std::int64_t full_bytes() const;  ///< bytes once a client is written

 private:
  const OwnClients& clients_;
  double initial_;
  std::vector<double> values_;  // of all clients, or of none
  std::vector<bool> written_;
};

/// Keeps the state of this rank's clients between rounds, by name. Its place (store.device_budget)
/// never changes a number.
///
/// A checkpoint goes through row_names() and scalar_names(), reads written_clients() of each in
/// blocks, and saves them. A restore clears what is there and writes.
class ClientStore {
 public:
  /// `clients`: ids of this rank's clients, ascending. `device`: nullptr where training happens in
  /// host memory. `host`: pinned where a device reads it. Both outlive the store.
  explicit ClientStore(std::vector<std::int64_t> clients, const StoreOptions& options = {},
                       RowMemory* device = nullptr, RowMemory& host = host_memory());

  /// Makes the rows called `name`, of the layout and type of `initial` [1, P]. There must be none of
  /// that name yet: what links and buffers keep beside a method's rows is not the method's.
  StoredRows& rows(const std::string& name, const Rows& initial);
  StoredRows& rows(const std::string& name);  ///< must exist
  /// Returns the scalar column called `name`. The first call makes it; its initial number stays.
  ScalarColumn& scalars(const std::string& name, double initial);
  ScalarColumn& scalars(const std::string& name);  ///< must exist

  bool has_rows(const std::string& name) const { return rows_.contains(name); }
  bool has_scalars(const std::string& name) const { return scalars_.contains(name); }
  std::vector<std::string> row_names() const;     ///< in alphabetical order
  std::vector<std::string> scalar_names() const;  ///< in alphabetical order
  const std::vector<std::int64_t>& clients() const { return clients_.ids(); }

  /// Whether anything is kept for clients.
  bool keeps_state() const { return !rows_.empty() || !scalars_.empty(); }
  /// The bytes of a client's rows and numbers, once written.
  std::int64_t bytes_of_client() const;
  /// Packs what is kept of some clients or guests, [n] uint8: which of it is written, and that. In
  /// host memory only, as the other calls on guests.
  Tensor pack(std::span<const std::int64_t> clients) const;
  /// Stores what pack() made of these clients, here or on another rank.
  void unpack(std::span<const std::int64_t> clients, const void* packed);
  /// Makes places for guests, ascending ids, in the place of those before, whose state is forgotten.
  void take_in(std::vector<std::int64_t> guests);

  StoreBytes memory_bytes() const;  ///< now
  /// The bytes of both kinds of memory together once every client is written.
  std::int64_t full_bytes() const;

 private:
  OwnClients clients_;
  RowPlacement placement_;
  std::map<std::string, std::unique_ptr<StoredRows>> rows_;
  std::map<std::string, std::unique_ptr<ScalarColumn>> scalars_;
};

}  // namespace fedhpc
