#include "app/still_at_work.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>

namespace fedhpc {

namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

StillAtWork::StillAtWork(std::string work)
    : speaker_([work = std::move(work)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any end;
        std::unique_lock lock(mutex);
        std::chrono::seconds pause = kPatience;
        std::chrono::seconds so_far{0};
        while (!end.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
          if (stop.stop_requested()) return;
          so_far += pause;
          pause = so_far;
          std::fprintf(stderr, "fedhpc: still %s, for %lld s now\n", work.c_str(),
                       static_cast<long long>(so_far.count()));
        }
      }) {}

}  // namespace fedhpc
