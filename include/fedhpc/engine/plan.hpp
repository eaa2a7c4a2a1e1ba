#pragma once

#include <cstdint>

#include "fedhpc/engine/parts.hpp"

namespace fedhpc {

/// The cost of a run. Payloads are those of one round of one participant, and of its edge
/// (0 without edge models).
struct PlannedRun {
  std::int64_t up_per_client = 0;         ///< bytes
  std::int64_t down_per_client = 0;       ///< bytes
  std::int64_t up_per_edge = 0;           ///< bytes
  std::int64_t down_per_edge = 0;         ///< bytes
  double seconds_per_step = 0;            ///< of one client, in all trainings of a round together
  double seconds_of_evaluation = 0;       ///< of all clients, on the slowest rank
  double seconds_of_server = 0;           ///< of a round beside training, with work between clients
  std::int64_t clients_with_rows = 0;     ///< of all ranks, by the end
  double gradient_values_per_sample = 0;  ///< of a step; P for one gradient of all weights
  std::int64_t memory_bytes = 0;          ///< of host memory, of the process that takes the most
};

/// Measures by trial: rounds of the clients with the most samples, each of one local step or two,
/// and evaluations of a few; where the server works between clients, of all participants. Exact for
/// payloads whose size does not depend on the data. Moves the method's state, so that no run may
/// follow. Collective.
PlannedRun plan_run(Parts& parts);

/// What a run means to the ranks of a machine, which need not be there.
struct PlannedMachine {
  int ranks = 1;
  double balance = 1;          ///< mean over maximum of the ranks' work, mean over rounds
  double balance_at_home = 1;  ///< the same without moves
  double moved = 0;            ///< participants trained away from home, of a round
  std::int64_t clients = 0;    ///< at home on the rank with the most
  std::int64_t memory_bytes = 0;
};

/// Plans rounds of a run on `ranks` ranks of one host. Memory is what has been measured here, with
/// the samples and the clients' state of the fullest rank there. Collective.
PlannedMachine plan_machine(const Parts& parts, const PlannedRun& run, int ranks);

}  // namespace fedhpc
