#include <algorithm>
#include <exception>
#include <map>

#include <ATen/ops/full.h>

#include "comm/deadline.hpp"
#include "comm/mpi_communicator.hpp"

// Memory that the ranks of one host read together.

namespace fedhpc {

namespace {

class MpiSharedMemory final : public SharedMemory {
 public:
  /// `window`: locked for all; `ranks`: those of the host in the communicator that shares it.
  MpiSharedMemory(std::unique_ptr<MpiCommunicator> host, MPI_Win window, const Tensor& ranks)
      : host_(std::move(host)), window_(window), uncaught_(std::uncaught_exceptions()) {
    for (int neighbour = 0; neighbour < host_->size(); ++neighbour) {
      MPI_Aint bytes = 0;
      int unit = 0;
      void* memory = nullptr;
      check_mpi(MPI_Win_shared_query(window_, neighbour, &bytes, &unit, &memory),
                "MPI_Win_shared_query");
      memory_[static_cast<int>(ranks.const_data_ptr<std::int64_t>()[neighbour])] = memory;
      if (neighbour == host_->rank()) own_ = memory;
    }
  }

  ~MpiSharedMemory() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    // After an exception the others may never come.
    if (finalized != 0 || std::uncaught_exceptions() > uncaught_) return;
    const Deadline deadline(host_->timed_wait().timeout_seconds(), "MPI_Win_free");
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  MpiSharedMemory(const MpiSharedMemory&) = delete;
  MpiSharedMemory& operator=(const MpiSharedMemory&) = delete;

  void* own() const override { return own_; }
  const void* of(int rank) const override {
    const auto found = memory_.find(rank);
    return found == memory_.end() ? nullptr : found->second;
  }
  void written() override {
    check_mpi(MPI_Win_sync(window_), "MPI_Win_sync");
    host_->barrier();
    check_mpi(MPI_Win_sync(window_), "MPI_Win_sync");
  }

 private:
  std::unique_ptr<MpiCommunicator> host_;
  MPI_Win window_;
  int uncaught_;
  void* own_ = nullptr;
  std::map<int, void*> memory_;
};

Tensor one(std::int64_t number) { return at::full({1}, number, at::kLong); }

}  // namespace

std::unique_ptr<SharedMemory> MpiCommunicator::share(std::int64_t bytes) {
  auto host = std::make_unique<MpiCommunicator>(neighbours_in_time(), wait_);
  if (host->size() == 1) return nullptr;
  const Tensor ranks = host->all_gather(one(rank_));
  MPI_Win window = MPI_WIN_NULL;
  int status = MPI_SUCCESS;
  {
    const Deadline deadline(wait_.timeout_seconds(), "MPI_Win_allocate_shared");
    MPI_Info hints = MPI_INFO_NULL;
    check_mpi(MPI_Info_create(&hints), "MPI_Info_create");
    MPI_Info_set(hints, "alloc_shared_noncontig", "true");  // each rank's memory near to its core
    void* own = nullptr;
    MPI_Comm_set_errhandler(host->handle(), MPI_ERRORS_RETURN);
    status = MPI_Win_allocate_shared(std::max<MPI_Aint>(bytes, 1), 1, hints, host->handle(),
                                     static_cast<void*>(&own), &window);
    MPI_Info_free(&hints);
  }
  Tensor failed = one(status == MPI_SUCCESS ? 0 : 1);
  host->max_(failed);
  // A window that some ranks lack cannot be freed: that would wait for them.
  if (failed.item<std::int64_t>() > 0) return nullptr;
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window), "MPI_Win_lock_all");
  return std::make_unique<MpiSharedMemory>(std::move(host), window, ranks);
}

std::vector<int> MpiCommunicator::hosts() {
  MpiCommunicator host(neighbours_in_time(), wait_);
  Tensor first = one(rank_);
  host.broadcast_(first, 0);
  const Tensor all = all_gather(first);
  const auto* values = all.const_data_ptr<std::int64_t>();
  return {values, values + size_};
}

}  // namespace fedhpc
