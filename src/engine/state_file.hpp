#pragma once

#include <set>
#include <string>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/rounds/state_visitor.hpp"
#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {

// A checkpoint has these below /state: NAME (tensors, rows [n, P], edges [E, P]). For the clients
// ever written, in no particular order, it has clients/rows/NAME/{ids [n], values [n, P]} and
// clients/scalars/NAME/{ids [n], values [n, 1]}.

/// Throws Error: a state that is visited after a round and not before it would not come back.
[[noreturn]] void refuse_late_state(const std::string& name);

/// Adds up the bytes of a state in a file, on this rank. Throws Error, naming what is visited, where
/// a file cannot hold it: a name twice or with '/', no numbers, another type than a state has.
class StateSize final : public StateVisitor {
 public:
  explicit StateSize(const Placement& placement) : placement_(placement) {}

  void tensor(const std::string& name, Tensor& values) override;
  void edges(const std::string& name, EdgeRows& models) override;
  void clients(ClientStore& store) override;

  /// The bytes that every rank has the same, and those of this rank alone.
  std::int64_t common_bytes() const { return common_bytes_; }
  std::int64_t own_bytes() const { return own_bytes_; }
  /// The own bytes once every client is written.
  std::int64_t full_own_bytes() const { return full_own_bytes_; }
  /// Of all that was visited, clients' rows and numbers too.
  const std::set<std::string>& names() const { return names_; }

 private:
  void check(const std::string& name, const Tensor& values);

  const Placement& placement_;
  std::set<std::string> names_;
  std::int64_t common_bytes_ = 0;
  std::int64_t own_bytes_ = 0;
  std::int64_t full_own_bytes_ = 0;
};

/// Writes a state into a file that rank 0 has open (others: nullptr). Collective.
class StateWriter final : public StateVisitor {
 public:
  StateWriter(Communicator& comm, const Placement& placement, const h5::Handle* file)
      : comm_(comm), placement_(placement), file_(file) {}

  void tensor(const std::string& name, Tensor& values) override;
  void edges(const std::string& name, EdgeRows& models) override;
  void clients(ClientStore& store) override;

 private:
  /// `read` returns some clients' values [C, width] of type `type`; those of `written` are saved.
  using Read = std::function<Tensor(std::span<const std::int64_t>)>;
  void write_clients(const std::string& path, const std::vector<std::int64_t>& written,
                     std::int64_t width, at::ScalarType type, const Read& read);

  Communicator& comm_;
  const Placement& placement_;
  const h5::Handle* file_;
};

/// Throws DataError where a file does not hold what a state needs. Changes nothing; for one rank.
class StateCheck final : public StateVisitor {
 public:
  StateCheck(const h5::Handle& file, std::string path, const Placement& placement)
      : file_(file), path_(std::move(path)), placement_(placement) {}

  void tensor(const std::string& name, Tensor& values) override;
  void rows(const std::string& name, Rows& rows) override;
  void edges(const std::string& name, EdgeRows& models) override;
  void clients(ClientStore& store) override;

 private:
  h5::Handle open(const std::string& name, at::ScalarType type) const;
  /// Checks rows of `width` columns, `count` of them unless that is -1.
  void check_rows(const std::string& name, at::ScalarType type, std::int64_t count,
                  std::int64_t width) const;
  /// Checks the ids of as many different clients of the run as there are rows, which were checked.
  void check_ids(const std::string& name) const;

  const h5::Handle& file_;
  std::string path_;
  const Placement& placement_;
};

/// Replaces a state by that of a file that rank 0 has open (others: nullptr). Collective.
class StateReader final : public StateVisitor {
 public:
  StateReader(Communicator& comm, const h5::Handle* file) : comm_(comm), file_(file) {}

  bool restores() const override { return true; }

  void tensor(const std::string& name, Tensor& values) override;
  void edges(const std::string& name, EdgeRows& models) override;
  void clients(ClientStore& store) override;

 private:
  /// `write` takes this rank's clients among those read and their values [C, width].
  using Write = std::function<void(std::span<const std::int64_t>, const Tensor&)>;
  void read_clients(const std::string& path, const std::vector<std::int64_t>& own,
                    std::int64_t width, at::ScalarType type, const Write& write);

  Communicator& comm_;
  const h5::Handle* file_;
};

}  // namespace fedhpc
