#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/network.hpp"
#include "fedhpc/rounds/weighted_sum.hpp"
#include "fedhpc/training/local_step.hpp"

namespace fedhpc {

/// A mean of a round that was left: its result once taken, before that its addends.
struct PartialMean {
  Tensor result;                      ///< [S, P]; undefined where the mean had not been taken
  std::shared_ptr<SumContents> open;  ///< null where it had
};

/// The work a rank has done of a round that is left between two blocks. Another process goes on
/// from it with the same bits, on the same number of ranks only.
struct PartialRound {
  bool evaluated = false;            ///< whether models are scored in the round
  std::int64_t passes = 0;           ///< ways through the participants that are over
  std::vector<std::int64_t> done;    ///< clients of the way under way whose block is done
  std::vector<PartialMean> means{};  ///< in the order the method asked for them
  Ledger ledger{};
  RoundClock::Times times{};
  std::vector<TrainStatistics> statistics{};
  std::map<std::string, std::vector<double>> notes{};  ///< of this rank's clients and edges
};

/// Holds a PartialRound as plain numbers, for a file.
struct PackedRound {
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
};

PackedRound pack(const PartialRound& round);

/// Throws DataError for numbers that pack() did not make.
PartialRound unpack(const PackedRound& packed);

}  // namespace fedhpc
