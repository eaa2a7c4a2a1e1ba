// What the communicators count, for comparison with what the hosts' network interfaces count.
//
//   wire_traffic call VERB BYTES TIMES                     one collective of Communicator, repeated
//   wire_traffic run CONFIG.ini [--section.key=value ...]  a run without a result file
//
// Prints one JSON object per rank in a list: bytes handed to the communicators of all ranks, of an
// edge's ranks and of edge leaders.

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/experiment.hpp"

namespace {

using namespace fedhpc;

constexpr double kTimeout = 60;  // s

struct RankTraffic {
  std::int64_t world = 0;  // in collectives
  std::int64_t parcels = 0;
  std::int64_t edge = 0;
  std::int64_t leaders = 0;
};

/// `times` collectives, for each of which a rank hands over `bytes` bytes.
RankTraffic call(Communicator& comm, const std::string& verb, std::int64_t bytes,
                 std::int64_t times) {
  const std::int64_t values = bytes / static_cast<std::int64_t>(sizeof(double));
  Tensor tensor = at::zeros({values}, at::kDouble);
  const std::vector<Tensor> parts =
      at::zeros({comm.size(), values / comm.size()}, at::kDouble).unbind();
  const std::map<std::string, std::function<void()>> verbs = {
      {"sum", [&] { comm.sum_(tensor); }},
      {"max", [&] { comm.max_(tensor); }},
      {"broadcast", [&] { comm.broadcast_(tensor, 0); }},
      {"gather", [&] { comm.gather(tensor, 0); }},
      {"all_gather", [&] { comm.all_gather(tensor); }},
      {"all_to_all", [&] { comm.all_to_all(parts); }},
  };
  const auto found = verbs.find(verb);
  if (found == verbs.end()) throw ConfigError("wire_traffic: no collective '" + verb + "'");
  for (std::int64_t i = 0; i < times; ++i) found->second();
  return {.world = comm.traffic().bytes};
}

RankTraffic run(Communicator& comm, const std::vector<std::string>& arguments) {
  std::vector<Assignment> assignments = read_ini(arguments.front());
  for (Assignment& one : parse_command_line({arguments.begin() + 1, arguments.end()})) {
    assignments.push_back(std::move(one));
  }
  Config config(assignments, arguments.front());
  Experiment experiment(config, comm);
  experiment.run([](const RoundReport&) {});
  return {.world = comm.traffic().bytes - comm.traffic().parcels,
          .parcels = comm.traffic().parcels,
          .edge = experiment.parts().topology->edge_traffic().bytes,
          .leaders = experiment.parts().topology->leader_traffic().bytes};
}

void print(Communicator& comm, const RankTraffic& mine) {
  const std::vector<std::string> all =
      comm.all_texts(concat("{\"world\": ", mine.world, ", \"parcels\": ", mine.parcels,
                            ", \"edge\": ", mine.edge, ", \"leaders\": ", mine.leaders, "}"));
  if (comm.rank() == 0) std::printf("[%s]\n", join(all, ",\n ").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const Session session(&argc, &argv);
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const std::unique_ptr<Communicator> comm = world_communicator(kTimeout);
    if (arguments.size() == 4 && arguments[0] == "call") {
      print(*comm, call(*comm, arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3])));
    } else if (arguments.size() >= 2 && arguments[0] == "run") {
      print(*comm, run(*comm, {arguments.begin() + 1, arguments.end()}));
    } else {
      throw ConfigError(
          "wire_traffic call VERB BYTES TIMES | run CONFIG.ini [--section.key=value ...]");
    }
    return 0;
  } catch (const std::exception& error) {
    session.abort(error.what());
  }
}
