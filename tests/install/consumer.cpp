#include <cstdio>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/engine/experiment.hpp"

// Runs two rounds through the installed library.
int main() {
  const fedhpc::Origin origin{fedhpc::Level::CommandLine, "consumer"};
  fedhpc::Config config({{"run.rounds", "2", origin}, {"data.clients", "3", origin}}, "x.ini");
  const auto comm = fedhpc::local_communicator();
  fedhpc::Experiment experiment(config, *comm);
  int rounds = 0;
  experiment.run([&](const fedhpc::RoundReport& report) {
    ++rounds;
    std::printf("round %d: loss %g\n", static_cast<int>(report.round), report.metrics.train_loss);
  });
  return rounds == 2 ? 0 : 1;
}
