#pragma once

#include <memory>
#include <string>

#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/output.hpp"

namespace fedhpc {

/// Returns the communicator of all ranks for a run of this configuration: between GPUs where it
/// trains on them. Sets this rank's GPU. Collective.
std::unique_ptr<Communicator> run_communicator(const Config& config);

/// Notes in the log which of the assignments do not act.
void tell_notes(const Config& config);

/// Says on rank 0 that a run of this status has no rounds left.
RunEnd nothing_to_do(const Config& config, int rank, const std::string& status,
                     std::int64_t rounds);

/// Carries out a run, from its beginning or from a checkpoint, with all that it writes and shows. Its
/// exit code is 0 when complete, 1 when it diverged and was to stop then, 75 when a signal interrupted
/// it. `earlier`: what becomes of the result file that is there. An Error says where in its work the
/// rank was: "fedavg, training client 41 in round 17: ...". Collective.
RunEnd carry_out(Config& config, Communicator& comm, const Host& host, const Resumption* from,
                 Earlier earlier);

}  // namespace fedhpc
