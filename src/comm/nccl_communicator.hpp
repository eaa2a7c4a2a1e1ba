#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/gpu_library.hpp"

#include "comm/mpi_communicator.hpp"

namespace fedhpc {

/// Runs collectives on tensors in the memory of GPUs, one rank on each, by NCCL. MPI carries what
/// ranks tell each other first (NCCL's id, numbers of rows), and tensors of the host.
///
/// Work is enqueued on a stream of its own, behind what the tensors' stream holds by then, and its
/// end is an event. A rank polls that event, NCCL's asynchronous errors and the signs of life of
/// others as MpiCommunicator does. If something fails or nobody makes progress, it aborts NCCL's
/// communicator, which lets go of the device, and throws Error. From then on every call throws.
class NcclCommunicator final : public Communicator {
 public:
  /// Every rank of `host` joins with the device it uses already. Collective.
  NcclCommunicator(std::unique_ptr<MpiCommunicator> host, GpuLibrary& library);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void sum_(Tensor& values) override;
  void max_(Tensor& values) override;
  void broadcast_(Tensor& values, int root) override;
  Tensor gather(const Tensor& rows, int root) override;
  Tensor all_gather(const Tensor& rows) override;
  std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) override;
  std::vector<std::string> all_texts(const std::string& text) override;
  void barrier() override { host_->barrier(); }
  std::unique_ptr<Delivery> deliver(std::vector<Parcel> outgoing,
                                    std::vector<int> senders) override {
    return host_->deliver(std::move(outgoing), std::move(senders));
  }
  std::unique_ptr<SharedMemory> share(std::int64_t bytes) override { return host_->share(bytes); }
  std::vector<int> hosts() override { return host_->hosts(); }
  std::unique_ptr<Communicator> split(int colour) override;
  void progress() override { host_->progress(); }
  Place& place() override { return host_->place(); }
  double seconds_waited() const override { return host_->seconds_waited(); }

 private:
  NcclCommunicator(std::unique_ptr<MpiCommunicator> host, GpuLibrary& library,
                   GpuLibrary::Comm comm);

  /// A stream and two events, freed at the end.
  struct Lane {
    explicit Lane(GpuLibrary& owner);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    GpuLibrary& library;
    GpuLibrary::Stream stream = nullptr;
    GpuLibrary::Event filled = nullptr;  // tensors hold what was put in them
    GpuLibrary::Event ended = nullptr;   // the collective's work is done
  };

  /// Rows for another rank, or the memory for those that come from it.
  struct Message {
    int peer;
    Tensor rows;
  };

  void reduce(Tensor& values, GpuLibrary::Reduction reduction, Call what);
  /// Returns the rows of all ranks in rank order where `receives`, else none.
  Tensor gather_rows(const Tensor& rows, const std::vector<bool>& receives, Call what);
  /// Makes the tensors that come in for parts[r] going out to rank r, with its shape but for the
  /// number of rows.
  std::vector<Tensor> room_for(const std::vector<Tensor>& parts);
  /// Sends and receives between pairs of ranks, as one group.
  void exchange(const std::vector<Message>& outgoing, const std::vector<Message>& incoming,
                Call what);

  /// Enqueues work, waits for its end and gives up NCCL's communicator if that fails.
  void run(Call what, const std::function<void()>& enqueue);
  /// Waits until NCCL has done what its calls began.
  void settle(Call what);
  void check(GpuLibrary::Status status, Call what);
  void give_up() noexcept;

  std::unique_ptr<MpiCommunicator> host_;
  GpuLibrary& library_;
  Lane lane_;
  GpuLibrary::Comm comm_ = nullptr;
  int uncaught_;
};

}  // namespace fedhpc
