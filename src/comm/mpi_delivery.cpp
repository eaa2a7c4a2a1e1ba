#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "comm/mpi_communicator.hpp"

// Parcels between pairs of ranks, on their way while both work.

namespace fedhpc {

namespace {

constexpr int kTag = 1;  // collectives' messages have 0

class MpiDelivery final : public Delivery {
 public:
  MpiDelivery(MPI_Comm comm, TimedWait wait, std::int64_t number, std::vector<Parcel> outgoing,
              std::vector<int> senders)
      : comm_(comm), wait_(std::move(wait)), number_(number), outgoing_(std::move(outgoing)) {
    for (const int sender : senders) arrivals_.push_back({.rank = sender});
    for (Arrival& arrival : arrivals_) {
      check_mpi(MPI_Irecv(&arrival.size, 1, MPI_INT64_T, arrival.rank, kTag, comm_,
                          &arrival.requests.emplace_back(MPI_REQUEST_NULL)),
                Call::Delivery);
    }
    sizes_.reserve(outgoing_.size());
    for (const Parcel& parcel : outgoing_) {
      require(parcel.bytes.is_cpu() && parcel.bytes.is_contiguous() &&
                  parcel.bytes.scalar_type() == at::kByte,
              "a parcel holds bytes of host memory");
      sizes_.push_back(parcel.bytes.numel());
      check_mpi(MPI_Isend(&sizes_.back(), 1, MPI_INT64_T, parcel.rank, kTag, comm_,
                          &sends_.emplace_back(MPI_REQUEST_NULL)),
                Call::Delivery);
      each_piece(parcel.bytes, [&](void* data, int length) {
        check_mpi(MPI_Isend(data, length, MPI_BYTE, parcel.rank, kTag, comm_,
                            &sends_.emplace_back(MPI_REQUEST_NULL)),
                  Call::Delivery);
      });
    }
  }

  bool advance() override {
    bool all = true;
    for (Arrival& arrival : arrivals_) {
      if (!done(arrival.requests)) {
        all = false;
      } else if (!arrival.bytes.defined()) {  // its size is known now
        arrival.bytes = at::empty({arrival.size}, at::kByte);
        arrival.requests.clear();
        each_piece(arrival.bytes, [&](void* data, int length) {
          check_mpi(MPI_Irecv(data, length, MPI_BYTE, arrival.rank, kTag, comm_,
                              &arrival.requests.emplace_back(MPI_REQUEST_NULL)),
                    Call::Delivery);
        });
        all = all && done(arrival.requests);
      }
    }
    return done(sends_) && all;
  }

  std::vector<Tensor> finish() override {
    wait_.wait_until([this] { return advance(); }, Call::Delivery, number_);
    std::vector<Tensor> received;
    for (const Arrival& arrival : arrivals_) received.push_back(arrival.bytes);
    return received;
  }

 private:
  struct Arrival {
    int rank = 0;
    std::int64_t size = 0;
    Tensor bytes{};  // undefined until the size is known
    std::vector<MPI_Request> requests{};
  };

  template <typename Use>
  static void each_piece(const Tensor& bytes, const Use& use) {
    auto* data = static_cast<char*>(bytes.data_ptr());
    for (std::int64_t first = 0; first < bytes.numel(); first += kPiece) {
      use(data + first, to_count(std::min(kPiece, bytes.numel() - first)));
    }
  }

  static bool done(std::vector<MPI_Request>& requests) {
    int done = 0;
    check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        Call::Delivery);
    return done != 0;
  }

  MPI_Comm comm_;
  TimedWait wait_;
  std::int64_t number_;
  std::vector<Parcel> outgoing_;
  std::vector<std::int64_t> sizes_;
  std::vector<MPI_Request> sends_;
  std::vector<Arrival> arrivals_;
};

}  // namespace

std::unique_ptr<Delivery> MpiCommunicator::deliver(std::vector<Parcel> outgoing,
                                                   std::vector<int> senders) {
  ++traffic_.collectives;
  for (const Parcel& parcel : outgoing) {
    traffic_.bytes += parcel.bytes.numel();
    traffic_.parcels += parcel.bytes.numel();
  }
  return std::make_unique<MpiDelivery>(comm_.handle(), wait_, traffic_.collectives,
                                       std::move(outgoing), std::move(senders));
}

}  // namespace fedhpc
