#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/comm/place.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// The collectives of one communicator, and the bytes of payload that this rank handed to it.
struct Traffic {
  std::int64_t collectives = 0;
  std::int64_t bytes = 0;
  std::int64_t parcels = 0;  ///< bytes of them that were delivered to other ranks one by one
};

/// Bytes for one other rank: [n] uint8, contiguous, in host memory.
struct Parcel {
  int rank = 0;
  Tensor bytes;
};

/// Parcels on their way between pairs of ranks, which work meanwhile. It is finished before its end,
/// unless an exception ends the run.
class Delivery {
 public:
  virtual ~Delivery() = default;
  /// Lets messages get on, at the cost of a look at each; true once all have arrived.
  virtual bool advance() = 0;
  /// Waits for all of them, as a collective waits, and returns the bytes received, [n] uint8, in the
  /// order of the senders.
  virtual std::vector<Tensor> finish() = 0;
};

/// Memory of this rank that the other ranks of its host read in place. Its end is collective among
/// them, unless an exception ends the run.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual void* own() const = 0;
  /// The memory of another rank; null where that is on another host.
  virtual const void* of(int rank) const = 0;
  /// Waits until all ranks of the host have written what the others are to read. Collective.
  virtual void written() = 0;
};

/// The ranks of the real machine that work together (not the simulated network). The local
/// implementation is one process alone: every collective is the identity. Tensors are contiguous,
/// of float32, float64 or int64, in host memory. Where the ranks talk between devices
/// (device_communicator.hpp) they may lie on the device; each call is for one kind on all ranks.
/// All calls but `deliver`, `progress`, `place` and `seconds_waited` are collective. A waiting rank throws Error once no rank
/// anywhere has made progress for the length of the time-out.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void sum_(Tensor& values) = 0;  ///< replaces values by their sum over ranks
  virtual void max_(Tensor& values) = 0;  ///< replaces values by their maximum over ranks
  virtual void broadcast_(Tensor& values, int root) = 0;
  /// Sends the rows (first dimension) of all ranks to rank `root`, in rank order; other ranks get
  /// an empty tensor. All other dimensions are equal on all ranks.
  virtual Tensor gather(const Tensor& rows, int root) = 0;
  /// Sends the rows of all ranks to every rank, in rank order; otherwise as gather.
  virtual Tensor all_gather(const Tensor& rows) = 0;
  /// Sends parts[r] to rank r, one part per rank. Returns the parts received in rank order, this
  /// rank's own one without a copy. Parts may differ in their number of rows, not in other
  /// dimensions.
  virtual std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) = 0;
  /// Sends every rank's text to every rank.
  virtual std::vector<std::string> all_texts(const std::string& text) = 0;
  virtual void barrier() = 0;
  /// Sends parcels to other ranks and receives one from each of `senders`, who each send one. Not
  /// collective; of two deliveries between the same ranks one ends before the next begins.
  virtual std::unique_ptr<Delivery> deliver(std::vector<Parcel> outgoing,
                                            std::vector<int> senders) = 0;
  /// Makes `bytes` of memory that the ranks of this host share; null on all ranks of a host that has
  /// one alone, or not the memory.
  virtual std::unique_ptr<SharedMemory> share(std::int64_t bytes) = 0;
  /// The host of every rank, named by its first rank.
  virtual std::vector<int> hosts() = 0;
  static constexpr int kNoPart = -1;  ///< the colour of a rank in no part
  /// The ranks with the same colour form a new communicator, ordered by their rank here. A rank of
  /// colour kNoPart gets null.
  virtual std::unique_ptr<Communicator> split(int colour) = 0;
  /// Tells waiting ranks that this one makes progress. Long work calls it often (it costs a look at
  /// the clock).
  virtual void progress() {}
  /// The place of this rank in its work, shared by a communicator and all its parts. Other ranks
  /// name it when they have waited too long.
  virtual Place& place() = 0;
  /// Seconds that this rank has waited for others, in a communicator and all its parts.
  virtual double seconds_waited() const { return 0; }

  const Traffic& traffic() const { return traffic_; }

 protected:
  void count(const Tensor& values);
  void count(const std::vector<Tensor>& parts);  ///< as one collective

  Traffic traffic_;
};

/// One process alone: rank 0 of 1.
std::unique_ptr<Communicator> local_communicator();

/// The same for a rank that is alone in `part` of others: its place, its signs of life and the time
/// that it has waited are those of `part`.
std::unique_ptr<Communicator> alone_in(std::unique_ptr<Communicator> part);

/// Runs `work` on every rank and lets none go on alone. If it throws ConfigError or DataError
/// anywhere, all ranks throw the error of the lowest rank that failed. Other exceptions pass
/// through.
void fail_together(Communicator& comm, const std::function<void()>& work);

}  // namespace fedhpc
