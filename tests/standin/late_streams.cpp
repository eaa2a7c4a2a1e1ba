#include "standin/late_streams.hpp"

#include <vector>

namespace fedhpc::standin {

void LateStreams::enqueue(StreamKey stream, std::function<void()> work) {
  streams_[stream].push_back({std::move(work)});
  choose();
}

std::shared_ptr<Mark> LateStreams::mark(StreamKey stream) {
  auto mark = std::make_shared<Mark>(Mark{stream});
  enqueue(stream, [mark] {
    mark->passed = true;
    mark->time = std::chrono::steady_clock::now();
  });
  return mark;
}

void LateStreams::wait(StreamKey stream, std::shared_ptr<Mark> mark) {
  streams_[stream].push_back({nullptr, std::move(mark)});
  choose();
}

bool LateStreams::can_get_on(StreamKey stream) const {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second.empty()) return false;
  const Work& next = found->second.front();
  return next.awaited == nullptr || next.awaited->passed;
}

void LateStreams::step(StreamKey stream) {
  const Work next = std::move(streams_[stream].front());
  streams_[stream].pop_front();
  if (next.awaited != nullptr) return run_until(*next.awaited);
  struct End {
    bool& running;
    ~End() { running = false; }
  } const end{running_};
  running_ = true;
  next.work();
}

void LateStreams::run_until(const Mark& mark) {
  while (!mark.passed) step(mark.stream);
}

void LateStreams::run(StreamKey stream) {
  const auto found = streams_.find(stream);
  while (found != streams_.end() && !found->second.empty()) step(stream);
}

void LateStreams::run_all() {
  for (const auto& [stream, works] : streams_) run(stream);
}

void LateStreams::get_on() {
  std::vector<StreamKey> able;
  for (const auto& [stream, works] : streams_) {
    if (can_get_on(stream)) able.push_back(stream);
  }
  if (!able.empty()) step(able[random_() % able.size()]);
}

template <typename Wanted>
void LateStreams::run_able(const Wanted& wanted) {
  for (const auto& [stream, works] : streams_) {
    while (wanted(stream) && can_get_on(stream)) step(stream);
  }
}

/// Does what the seed wants done already.
void LateStreams::choose() {
  if (running_ || held_) return;
  run_able([](StreamKey stream) { return stream.second == kFrees; });
  if (seed_ == 0) return;
  if (seed_ == 1) return run_able([](StreamKey stream) { return stream.second != 0; });
  if (random_() % 64 == 0 && !streams_.empty()) {
    left_behind_ =
        std::next(streams_.begin(), static_cast<std::ptrdiff_t>(random_() % streams_.size()))
            ->first;
  }
  constexpr std::uint64_t kAtMost = 4;
  for (std::uint64_t some = random_() % kAtMost; some > 0; --some) {
    std::vector<StreamKey> able;
    for (const auto& [stream, works] : streams_) {
      if (stream != left_behind_ && can_get_on(stream)) able.push_back(stream);
    }
    if (able.empty()) return;
    step(able[random_() % able.size()]);
  }
}

}  // namespace fedhpc::standin
