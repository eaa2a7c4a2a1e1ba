#pragma once

#include <cstdint>
#include <functional>

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Counts what participants need of the rounds they have missed, for methods whose server sends
/// changes of a model. It counts beside the round's bytes, and is no part of them.
class CatchUp {
 public:
  /// Keeps the last round of each client in the store; adds the series catch_up_bytes.
  explicit CatchUp(const Setup& setup);
  CatchUp() = default;

  /// The clients of `block` take part in `round`, for the first time since round `last` (0: ever).
  /// Each has missed so many messages of so many bytes, or needs the whole model where that is
  /// less.
  void note(Block& block, std::int64_t round,
            const std::function<std::int64_t(std::int64_t last)>& missed, std::int64_t message,
            std::int64_t whole);
  /// Counts for a server that sends one message in every round.
  void note(Block& block, std::int64_t round, std::int64_t message, std::int64_t whole);

 private:
  ScalarColumn* last_round_ = nullptr;  // each client's last one
};

}  // namespace fedhpc
