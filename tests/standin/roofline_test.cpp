// What a captured step makes a device do: kernels, bytes, operations, and what a card would take for
// them at least. Nothing is computed, so that the sizes are those of bench/device_training.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/training/local_trainer.hpp"

#include "fixtures/standin.hpp"
#include "standin/standin.hpp"
#include "training_setting.hpp"

namespace fedhpc {
namespace {

using bench::TrainingCase;
using bench::TrainingSetting;

/// Numbers of a card: an NVIDIA H200's, bytes by its data sheet, the others as measured
/// (bench/RESULTS.md; a launch is a 14th of a step of one client's DNN-100). Others by
/// FEDHPC_CARD=BYTES,OPERATIONS,SECONDS.
struct Card {
  double bytes_a_second = 4.8e12;
  double operations_a_second = 51.1e12;  ///< fp32
  double seconds_a_launch = 3.2e-6;      ///< of a graph's kernel

  static Card of_environment() {
    Card card;
    const char* text = std::getenv("FEDHPC_CARD");
    if (text != nullptr && std::sscanf(text, "%lf,%lf,%lf", &card.bytes_a_second,
                                       &card.operations_a_second, &card.seconds_a_launch) != 3) {
      throw Error(concat("FEDHPC_CARD = ", text, " is not BYTES,OPERATIONS,SECONDS"));
    }
    return card;
  }
};

struct Kernel {
  std::int64_t launches = 0;
  std::int64_t bytes = 0;
  double operations = 0;
  bool operator==(const Kernel&) const = default;
};

using Kernels = std::map<std::string, Kernel>;

double seconds_of(const Kernel& of, const Card& card) {
  return std::max(static_cast<double>(of.bytes) / card.bytes_a_second,
                  of.operations / card.operations_a_second) +
         static_cast<double>(of.launches) * card.seconds_a_launch;
}

/// What the stand-in has counted, see standin.hpp.
Kernels counted(bool of_step) {
  void* module = dlopen(std::getenv("FEDHPC_GPU_MODULE"), RTLD_NOW | RTLD_LOCAL);
  auto* costs =
      reinterpret_cast<decltype(&fedhpc_standin_costs)>(dlsym(module, "fedhpc_standin_costs"));
  Kernels kernels;
  costs(
      of_step ? 1 : 0,
      [](void* to, const char* name, std::int64_t launches, std::int64_t bytes, double operations) {
        (*static_cast<Kernels*>(to))[name] = {launches, bytes, operations};
      },
      &kernels);
  return kernels;
}

/// A step of local training, and what a call enqueues beside its steps.
std::pair<Kernels, Kernels> local_training(const TrainingCase& which, std::int64_t clients) {
  const TrainingSetting setting(which, clients, 0, current_cuda_device());
  const TrainOptions options{.batch_size = which.batch, .local_steps = which.steps, .lr = 1e-6};
  LocalTrainer trainer(setting.model(), setting.shard(), options,
                       {.device = setting.device(), .seed = 1});
  std::vector<std::int64_t> ids(static_cast<std::size_t>(clients));
  std::iota(ids.begin(), ids.end(), 0);
  const Rows one{initial_row(*setting.model().layout(), 1, at::kFloat).to(setting.device()),
                 setting.model().layout()};
  Rows rows = one.replicate(clients);
  for (std::int64_t round = 1; round <= 2; ++round) trainer.train_(rows, ids, round, {});
  counted(/*of_step=*/false);
  trainer.train_(rows, ids, 3, {});
  EXPECT_EQ(trainer.captured_steps(), 1);
  return {counted(/*of_step=*/true), counted(/*of_step=*/false)};
}

/// A step of TDPFed as bench/tdpfed_ratios has it: five steps on the model, 17 on its factors.
Kernels tdpfed_step(std::int64_t clients) {
  std::vector<Assignment> assignments;
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"algorithm.name", "tdpfed"},
                                                        {"algorithm.personal_lr", "0.05"},
                                                        {"data.name", "glyphs"},
                                                        {"data.clients", std::to_string(clients)},
                                                        {"data.samples_per_client", "120"},
                                                        {"train.batch_size", "20"},
                                                        {"train.local_steps", "5"},
                                                        {"train.lr", "3e-4"},
                                                        {"train.block", std::to_string(clients)},
                                                        {"run.device", "cuda"},
                                                        {"run.rounds", "1"}}) {
    assignments.push_back({key, value, {Level::CommandLine, "test"}});
  }
  Config config(assignments, "test.ini");
  const std::unique_ptr<Communicator> comm = local_communicator();
  Experiment experiment(config, *comm);
  experiment.run([](const RoundReport&) {}, [](std::int64_t) { return RoundRequest{}; });
  return counted(/*of_step=*/true);
}

class Roofline : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("FEDHPC_STANDIN_DRY", "1", 1);
    Standin::get();
  }

  void take(const std::string& name, const Kernels& kernels) {
    for (const auto& [kernel, of] : kernels) {
      EXPECT_GT(of.bytes, 0) << kernel << " has no cost in tests/standin/metered_table.hpp";
    }
    steps_.emplace_back(name, kernels);
  }
  void take(const std::string& name, const TrainingCase& which, std::int64_t clients,
            const std::string& convolutions = "unfolded") {
    setenv("FEDHPC_CONVOLUTION", convolutions.c_str(), 1);
    const auto [step, around] = local_training(which, clients);
    take(name, step);
    take(name + ": beside the steps", around);
  }

  std::string csv() const {
    std::ostringstream text;
    text << "case,kernel,launches,bytes,operations\n";
    text.precision(15);
    for (const auto& [name, kernels] : steps_) {
      for (const auto& [kernel, of] : kernels) {
        text << name << ',' << kernel << ',' << of.launches << ',' << of.bytes << ','
             << of.operations << '\n';
      }
    }
    return text.str();
  }

  void print(const Card& card) const {
    std::printf("%-44s %8s %10s %10s %10s\n", "", "launches", "MB", "Mop", "us at best");
    for (const auto& [name, kernels] : steps_) {
      Kernel all;
      double seconds = 0;
      for (const auto& [kernel, of] : kernels) {
        all.launches += of.launches;
        all.bytes += of.bytes;
        all.operations += of.operations;
        seconds += seconds_of(of, card);
      }
      const auto line = [&](const std::string& what, const Kernel& of, double projected) {
        std::printf("%-44s %8lld %10.2f %10.1f %10.1f\n", what.c_str(),
                    static_cast<long long>(of.launches), 1e-6 * static_cast<double>(of.bytes),
                    1e-6 * of.operations, 1e6 * projected);
      };
      line(name, all, seconds);
      for (const auto& [kernel, of] : kernels) line("  " + kernel, of, seconds_of(of, card));
    }
  }

 private:
  std::vector<std::pair<std::string, Kernels>> steps_;
};

std::vector<std::string> lines_of(std::istream& text) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

// A pass more, a kernel more or an operand more shows here.
TEST_F(Roofline, StepsDoWhatIsRecorded) {
  const std::vector<std::int64_t> colour{3, 32, 32};
  const TrainingCase cnn4{"cnn4", colour, 64, 2, 2};
  const TrainingCase dnn{"dnn", {1, 28, 28}, 20, 10, 2};
  take("dnn x 1", dnn, 1);
  take("dnn x 100", dnn, 100);
  take("cnn4 x 1", cnn4, 1);
  take("cnn4 x 10", cnn4, 10);
  take("cnn4 x 100", cnn4, 100);
  take("cnn4 x 10 by LibTorch", cnn4, 10, "loop");
  take("vgg8 x 10", {"vgg8", colour, 64, 2, 2}, 10);
  take("resnet18_gn x 20", {"resnet18_gn", colour, 64, 2, 2}, 20);
  take("tdpfed x 100", tdpfed_step(100));
  print(Card::of_environment());

  const std::string path =
      std::string(std::getenv("FEDHPC_SOURCE_DIR")) + "/tests/standin/costs.csv";
  if (std::getenv("FEDHPC_RECORD_COSTS") != nullptr) std::ofstream(path) << csv();
  std::ifstream file(path);
  std::istringstream seen(csv());
  const std::vector<std::string> expected = lines_of(file);
  const std::vector<std::string> actual = lines_of(seen);
  std::string changes;
  const auto differ = [&](const char* sign, const auto& of, const auto& other) {
    for (const std::string& line : of) {
      if (!std::ranges::binary_search(other, line)) changes += sign + line + '\n';
    }
  };
  differ("- ", expected, actual);
  differ("+ ", actual, expected);
  EXPECT_EQ(changes, "") << "-: as recorded in tests/standin/costs.csv, +: now. If that is meant: "
                            "FEDHPC_RECORD_COSTS=1 build/release/tests/roofline_test";
}

}  // namespace
}  // namespace fedhpc
