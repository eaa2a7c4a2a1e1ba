#include "app/still_at_work.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/stop_signals.hpp"

namespace fedhpc {

namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kLook{200};  // for a signal

}  // namespace

StillAtWork::StillAtWork(std::string work)
    : speaker_([work = std::move(work)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any end;
        std::unique_lock lock(mutex);
        const auto begin = std::chrono::steady_clock::now();
        std::chrono::seconds said = kPatience;  // when it speaks next
        bool heard = false;
        while (!end.wait_for(lock, stop, kLook, [&] { return stop.stop_requested(); })) {
          if (stop.stop_requested()) return;
          if (!heard && caught_signal() != 0) {
            heard = true;
            run_log().of_run(LogLevel::Note,
                             concat("still ", work,
                                    ", then stops after a round; a second signal ends it at once"));
          }
          if (std::chrono::steady_clock::now() - begin < said) continue;
          run_log().of_run(LogLevel::Note,
                           concat("still ", work, ", for ", said.count(), " s now"));
          said *= 2;
        }
      }) {}

}  // namespace fedhpc
