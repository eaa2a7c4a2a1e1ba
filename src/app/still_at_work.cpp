#include "app/still_at_work.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"

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
          run_log().of_run(LogLevel::Note,
                           concat("still ", work, ", for ", so_far.count(), " s now"));
        }
      }) {}

}  // namespace fedhpc
