#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "fedhpc/comm/communicator.hpp"

namespace fedhpc {

/// Throws Error with MPI's own text unless `status` is success.
void check_mpi(int status, const char* what);

/// MPI's name of the type of a contiguous CPU tensor of float32, float64 or int64.
MPI_Datatype datatype(const Tensor& values);

/// A count as MPI takes it.
int to_count(std::int64_t n);

/// Values per message: a larger tensor travels in pieces, MPI counts are 32-bit.
constexpr std::int64_t kPiece = std::int64_t{1} << 30;

/// Owns an MPI_Comm made by a duplication or a split. A move leaves MPI_COMM_NULL.
class CommHandle {
 public:
  CommHandle() = default;
  explicit CommHandle(MPI_Comm comm) : comm_(comm) {}
  ~CommHandle() { reset(); }
  CommHandle(CommHandle&& other) noexcept : comm_(other.release()) {}
  CommHandle& operator=(CommHandle&& other) noexcept {
    if (this != &other) {
      reset();
      comm_ = other.release();
    }
    return *this;
  }
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;

  MPI_Comm handle() const { return comm_; }
  /// Leaves the communicator to the end of MPI: messages may still be on their way in it.
  void abandon() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm release() {
    const MPI_Comm comm = comm_;
    comm_ = MPI_COMM_NULL;
    return comm;
  }
  void reset() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
};

class Heartbeat;

/// Collectives on CPU tensors by non-blocking MPI calls, polled until they end or no rank has got
/// on for the length of the time-out (MPI itself never reports a lost peer).
class MpiCommunicator final : public Communicator {
 public:
  /// `heartbeat` is that of the world: a rank may wait for one outside its own communicator.
  MpiCommunicator(CommHandle comm, double timeout_seconds, std::shared_ptr<Heartbeat> heartbeat);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void sum_(Tensor& values) override;
  void max_(Tensor& values) override;
  void broadcast_(Tensor& values, int root) override;
  Tensor gather(const Tensor& rows, int root) override;
  Tensor all_gather(const Tensor& rows) override;
  Tensor ring_shift(const Tensor& rows) override;
  std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) override;
  std::vector<std::string> all_texts(const std::string& text) override;
  void barrier() override;
  void beat() override;
  std::unique_ptr<Communicator> split(int colour) override;

 private:
  /// Begins one non-blocking collective on (data, count, type).
  using Begin = std::function<int(void*, int, MPI_Datatype, MPI_Request*)>;

  /// Runs a collective in place on pieces small enough for MPI's 32-bit counts.
  void in_pieces(Tensor& values, const char* what, const Begin& begin);
  void reduce(Tensor& values, MPI_Op operation, const char* what);

  /// What goes to another rank, or the memory for what comes from it.
  struct Letter {
    int peer;
    Tensor values;
  };

  /// Sends and receives whole tensors between pairs of ranks, in pieces, all at the same time.
  void exchange(const std::vector<Letter>& outgoing, const std::vector<Letter>& incoming,
                const char* what) const;
  /// As exchange, where the receiver does not know how many rows to expect: makes the tensors of
  /// the ranks `senders`, shaped like `like` but for their number of rows.
  std::vector<Tensor> exchange_rows(const std::vector<Letter>& outgoing,
                                    const std::vector<int>& senders, const Tensor& like,
                                    const char* what) const;

  void wait(MPI_Request request, const char* what) const;

  CommHandle comm_;
  double timeout_seconds_;
  std::shared_ptr<Heartbeat> heartbeat_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace fedhpc
