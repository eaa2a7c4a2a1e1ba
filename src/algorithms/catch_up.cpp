#include "fedhpc/algorithms/catch_up.hpp"

#include <algorithm>

namespace fedhpc {

namespace {

constexpr const char* kCatchUp = "catch_up_bytes";

}  // namespace

CatchUp::CatchUp(const Setup& setup) : last_round_(&setup.store().scalars("last_round", 0)) {
  setup.add_metrics(
      {{kCatchUp, "bytes",
        "mean over participants of what a client needs of rounds it has missed; not among the "
        "bytes of the round"}});
}

void CatchUp::note(Block& block, std::int64_t round,
                   const std::function<std::int64_t(std::int64_t last)>& missed,
                   std::int64_t message, std::int64_t whole) {
  std::vector<double> bytes;
  for (const std::int64_t client : block.clients()) {
    const auto last = static_cast<std::int64_t>(last_round_->read(client));
    bytes.push_back(static_cast<double>(std::min(missed(last) * message, whole)));
    last_round_->write(client, static_cast<double>(round));
  }
  block.note_received(kCatchUp, bytes);
}

void CatchUp::note(Block& block, std::int64_t round, std::int64_t message, std::int64_t whole) {
  // Before round t there are messages 1 to t - 1, of which the last travels in round t.
  const auto sent_before = [](std::int64_t t) { return std::max<std::int64_t>(t - 1, 0); };
  const auto missed = [&](std::int64_t last) { return sent_before(round - 1) - sent_before(last); };
  note(block, round, missed, message, whole);
}

}  // namespace fedhpc
