#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/gpu_library.hpp"

namespace fedhpc {

/// Runs collectives on tensors of GPUs by way of pinned host memory and MPI, where several ranks
/// share a card, which NCCL refuses. Tensors of the host go straight to MPI.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, GpuLibrary& library)
      : host_(std::move(host)), library_(library) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void sum_(Tensor& values) override;
  void max_(Tensor& values) override;
  void broadcast_(Tensor& values, int root) override;
  Tensor gather(const Tensor& rows, int root) override;
  Tensor all_gather(const Tensor& rows) override;
  std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) override;
  std::vector<std::string> all_texts(const std::string& text) override {
    return host_->all_texts(text);
  }
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
  /// Runs a collective of `host_` that replaces values.
  void replace_(Tensor& values, const std::function<void(Tensor&)>& collective);
  Tensor to_host(const Tensor& values);
  Tensor to_device(const Tensor& staged, const Tensor& like);
  void copy_(const Tensor& to, const Tensor& from);

  std::unique_ptr<Communicator> host_;
  GpuLibrary& library_;
};

}  // namespace fedhpc
