#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace fedhpc::standin {

/// A stream of a card.
using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

/// A place in a stream: passed once all that was enqueued before is done.
struct Mark {
  StreamKey stream;
  bool passed = false;
  std::chrono::steady_clock::time_point time{};  ///< when it was passed
};

/// Streams whose work is not done when it is enqueued, but later: at the latest when the host waits
/// for it, in any order that waits of streams for marks allow. The seed chooses one.
///   0  as late as possible
///   1  on all but the default streams as soon as possible, there as late as possible
///   *  at random, one stream being left behind for a while
class LateStreams {
 public:
  explicit LateStreams(std::uint64_t seed) : seed_(seed), random_(seed) {}

  /// Where memory is freed that several streams use: a stream that no other waits for.
  static StreamKey of_frees(StreamKey of_card) { return {of_card.first, kFrees}; }

  void enqueue(StreamKey stream, std::function<void()> work);
  std::shared_ptr<Mark> mark(StreamKey stream);
  /// Work of the stream from now on waits for the mark, not the caller.
  void wait(StreamKey stream, std::shared_ptr<Mark> mark);

  void run_until(const Mark& mark);
  void run(StreamKey stream);
  void run_all();
  /// Lets some stream get on by one, if one can; a host that polls comes to an end.
  void get_on();

  /// While it is held nothing gets on by itself: what runs would be recorded by a capture.
  void hold(bool held) { held_ = held; }

  /// Whether work is being done: what it enqueues is part of it.
  bool is_running() const { return running_; }

 private:
  static constexpr c10::StreamId kFrees = -1;

  struct Work {
    std::function<void()> work;          // or
    std::shared_ptr<Mark> awaited = {};  // another stream's
  };

  bool can_get_on(StreamKey stream) const;
  /// Does the next of a stream, and before it what that waits for.
  void step(StreamKey stream);
  void choose();
  /// Does what can be done already of the streams that are `wanted`.
  template <typename Wanted>
  void run_able(const Wanted& wanted);

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::map<StreamKey, std::deque<Work>> streams_;
  StreamKey left_behind_{-1, 0};
  bool running_ = false;
  bool held_ = false;
};

}  // namespace fedhpc::standin
