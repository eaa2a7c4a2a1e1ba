#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <mpi.h>

#include "fedhpc/comm/communicator.hpp"

#include "comm/mpi_support.hpp"
#include "comm/timed_wait.hpp"

namespace fedhpc {

/// Runs collectives on CPU tensors by non-blocking MPI calls. It polls them until they end, or
/// until no rank has made progress for the length of the time-out. MPI itself never reports a lost
/// peer.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(CommHandle comm, TimedWait wait);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void sum_(Tensor& values) override;
  void max_(Tensor& values) override;
  void broadcast_(Tensor& values, int root) override;
  Tensor gather(const Tensor& rows, int root) override;
  Tensor all_gather(const Tensor& rows) override;
  std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) override;
  std::vector<std::string> all_texts(const std::string& text) override;
  void barrier() override;
  std::unique_ptr<Delivery> deliver(std::vector<Parcel> outgoing,
                                    std::vector<int> senders) override;
  std::unique_ptr<SharedMemory> share(std::int64_t bytes) override;
  std::vector<int> hosts() override;
  void progress() override { wait_.progress(); }
  Place& place() override { return wait_.place(); }
  double seconds_waited() const override { return wait_.seconds_waited(); }
  std::unique_ptr<Communicator> split(int colour) override;

  std::unique_ptr<MpiCommunicator> part(int colour);  ///< as split
  const TimedWait& timed_wait() const { return wait_; }
  MPI_Comm handle() const { return comm_.handle(); }

 private:
  /// Begins one non-blocking collective on (data, count, type).
  using Begin = std::function<int(void*, int, MPI_Datatype, MPI_Request*)>;

  /// Runs a collective in place on pieces small enough for MPI's 32-bit counts.
  void in_pieces(Tensor& values, Call what, const Begin& begin);
  void reduce(Tensor& values, MPI_Op operation, Call what);

  /// A tensor for another rank, or the memory for one that comes from it.
  struct Message {
    int peer;
    Tensor values;
  };

  /// Sends and receives whole tensors between pairs of ranks, in pieces, all at the same time.
  void exchange(const std::vector<Message>& outgoing, const std::vector<Message>& incoming,
                Call what) const;
  /// Exchanges tensors where the receiver does not know how many rows to expect. Makes the tensors
  /// of the ranks `senders`, shaped like `like` but for their number of rows.
  std::vector<Tensor> exchange_rows(const std::vector<Message>& outgoing,
                                    const std::vector<int>& senders, const Tensor& like,
                                    Call what) const;

  /// Sends this rank's rows to the ranks that receive, and puts together what it receives itself.
  Tensor gather_rows(const Tensor& rows, const std::function<bool(int)>& receives, Call what);

  void wait(MPI_Request request, Call what) const;
  /// The ranks of this one's host. Collective.
  CommHandle neighbours() const;
  /// The same once everybody is there: MPI_Comm_split_type has no deadline.
  CommHandle neighbours_in_time();

  CommHandle comm_;
  TimedWait wait_;
  int rank_ = 0;
  int size_ = 1;
  bool spans_hosts_ = false;
};

}  // namespace fedhpc
