#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/training/local_trainer.hpp"

#include "client_loop.hpp"
#include "device_clock.hpp"
#include "training_setting.hpp"
#include "training_table.hpp"

// Whole-run driver: client-steps a second of local training on a device (or the host), with and
// without captured graphs, against a loop over clients with LibTorch's autograd and against the
// device's peak, measured in the same process and precision, the variants taking turns.
// README.md has the options.

namespace {

using namespace fedhpc;
using namespace fedhpc::bench;

constexpr double kRate = 1e-6;  // small: weights must stay finite over many repetitions

struct Options {
  std::vector<std::int64_t> clients{1, 10, 100, 1000};
  std::vector<std::string> models{"dnn", "cnn4", "resnet9", "resnet18_gn"};
  std::vector<std::string> precision{"fp32", "tf32", "bf16"};
  std::string device = "cuda";
  std::int64_t steps = 0;
  std::int64_t batch = 0;
  std::int64_t loop_clients = 10;
  std::int64_t peak_side = 8192;
  double seconds = 5;
  bool reproducible = false;
  std::string csv = "-";

  void declare(OptionSet& set) {
    set.add("clients", clients, count_from(1), "clients of a block");
    set.add("models", models, {"dnn", "cnn4", "resnet9", "resnet18_gn"}, "models to train");
    set.add("precision", precision, {"fp32", "tf32", "bf16"}, "how float32 factors are taken");
    set.add_choice("device", device, {"cuda", "cpu"}, "where");
    set.add("steps", steps, at_least<std::int64_t>(0),
            "steps of a client and call; 0: the model's");
    set.add("batch", batch, at_least<std::int64_t>(0), "samples of a batch; 0: the model's");
    set.add("loop_clients", loop_clients, at_least<std::int64_t>(0),
            "the loop goes over that many clients at most; 0: no loop");
    set.add("peak_side", peak_side, at_least<std::int64_t>(1),
            "side of the products that the peak is measured by");
    set.add("seconds", seconds, above(0.0), "after which a comparison ends, once it has 3 turns");
    set.add("reproducible", reproducible,
            "train as with run.reproducible=true: products in order, convolutions unfolded");
    set.add("csv", csv, "file for the figures; -: none");
  }
};

Options read(int argc, char** argv) {
  Options options;
  OptionSet set;
  options.declare(set);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (word.rfind("--", 0) != 0 || (equals == std::string::npos && i + 1 == argc)) {
      throw ConfigError("'" + word + "': options are --NAME VALUE or --NAME=VALUE");
    }
    const bool joined = equals != std::string::npos;
    const std::string value = joined ? word.substr(equals + 1) : argv[++i];
    set.assign(word.substr(2, joined ? equals - 2 : equals), value,
               {Level::CommandLine, "command line"});
  }
  if (options.device == "cpu") {
    // LibTorch takes no shorter factors there.
    if (set.origin("precision").level == Level::Default) options.precision = {"fp32"};
    if (options.precision != std::vector<std::string>{"fp32"}) {
      set.refuse("precision", "device=cpu");
    }
    if (set.origin("peak_side").level == Level::Default) options.peak_side = 1024;
  }
  return options;
}

Precision precision_of(const std::string& name) {
  if (name == "tf32") return Precision::Tf32;
  return name == "bf16" ? Precision::Bf16 : Precision::Fp32;
}

/// The device's memory does not hold a case, which is a result as well.
struct NoRoom : Error {
  using Error::Error;
};

/// Gives back memory of the device that LibTorch keeps for later.
void free_cached_memory(at::Device device) {
  if (device.is_cpu()) return;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator != nullptr) allocator->emptyCache();
}

/// The project's local training of one block.
class BlockSteps {
 public:
  BlockSteps(const TrainingSetting& setting, std::int64_t steps, const Arithmetic& arithmetic)
      : clients_(static_cast<std::size_t>(setting.clients())),
        options_{.batch_size = setting.batch(),
                 .local_steps = steps,
                 .lr = kRate,
                 .precision = arithmetic.precision},
        trainer_(setting.model(), setting.shard(), options_,
                 {.device = setting.device(), .summation = arithmetic.summation, .seed = 1}) {
    std::iota(clients_.begin(), clients_.end(), 0);
    const Rows initial{
        initial_row(*setting.model().layout(), /*seed=*/1, at::kFloat).to(setting.device()),
        setting.model().layout()};
    require_room(setting, initial.values.nbytes());
    rows_ = initial.replicate(setting.clients());
  }

  /// Some trainings, one after the other; as in a round, losses are asked for at the end.
  double operator()(bool captured, int trainings = 1) {
    trainer_.capture_steps(captured);
    std::vector<TrainStatistics> seen;
    for (int i = 0; i < trainings; ++i) {
      seen = trainer_.train_(rows_, clients_, ++round_, LocalWork{});
    }
    return std::accumulate(seen.begin(), seen.end(), 0.0,
                           [](double sum, const auto& one) { return sum + one.loss; });
  }
  bool captures() const { return trainer_.captured_steps() > 0; }

 private:
  void require_room(const TrainingSetting& setting, std::size_t row) const {
    if (setting.device().is_cpu()) return;
    constexpr std::int64_t kRows = 2;  // trained, and held for captured steps
    const std::int64_t needed = trainer_.workspace_bytes(setting.clients()) +
                                kRows * setting.clients() * static_cast<std::int64_t>(row);
    const std::int64_t free = gpu_library().free_bytes();
    if (needed <= free) return;
    throw NoRoom(concat("needs ", needed >> 20, " MB, of which ", free >> 20, " are free"));
  }

  std::vector<std::int64_t> clients_;
  TrainOptions options_;
  LocalTrainer trainer_;
  Rows rows_;  // [C, P]
  std::int64_t round_ = 0;
};

/// One variant among those that take turns.
struct Variant {
  TrainingFigure figure;
  std::function<double()> call;
};

/// Lets the variants take turns, the loop first, and adds what they took to the table.
void take_turns(std::vector<Variant>& variants, const DeviceClock& clock, double seconds,
                bool has_loop, TrainingTable& table) {
  constexpr int kLeast = 3;
  constexpr int kMost = 31;
  for (const Variant& variant : variants) {  // the first calls allocate, measure, capture
    require(std::isfinite(variant.call()), "a variant computes finite numbers");
  }
  double spent = 0;
  for (int turn = 0; turn < kMost && (turn < kLeast || spent < seconds); ++turn) {
    for (Variant& variant : variants) {
      variant.figure.seconds.push_back(clock.seconds_of(variant.call));
      spent += variant.figure.seconds.back();
    }
  }
  double loop = 0;
  if (has_loop) {
    const TrainingFigure& first = variants.front().figure;
    loop = static_cast<double>(first.clients * first.steps) / median(first.seconds);
  }
  for (const Variant& variant : variants) table.add(variant.figure, loop);
}

void compare(const TrainingSetting& setting, const Options& options, const std::string& precision,
             double peak, TrainingTable& table) {
  const std::int64_t steps = options.steps > 0 ? options.steps : setting.which().steps;
  const TrainingFigure blank{.model = setting.which().name,
                             .clients = setting.clients(),
                             .precision = precision,
                             .steps = steps,
                             .flops = setting.flops_of_step(),
                             .peak = peak};
  constexpr int kInARow = 4;  // the host plans a block while the device trains the one before
  BlockSteps block(setting, steps,
                   {.precision = precision_of(precision),
                    .summation = options.reproducible ? Summation::Reproducible : Summation::Fast});
  std::vector<Variant> variants;
  std::unique_ptr<ClientLoop> loop;
  if (options.loop_clients > 0) {
    const std::int64_t clients = std::min(setting.clients(), options.loop_clients);
    loop = std::make_unique<ClientLoop>(setting, clients, steps, kRate, precision_of(precision));
    variants.push_back({blank, [&] { return (*loop)(); }});
    variants.back().figure.variant = "LibTorch loop";
    variants.back().figure.clients = clients;
  }
  variants.push_back({blank, [&] { return block(true); }});
  variants.back().figure.variant = options.reproducible ? "fedhpc, reproducible" : "fedhpc";
  if (setting.device().is_cuda()) {
    variants.push_back({blank, [&] { return block(false); }});
    variants.back().figure.variant = "fedhpc without graphs";
    variants.push_back({blank, [&] { return block(true, kInARow); }});
    variants.back().figure.variant = "fedhpc, blocks in a row";
    variants.back().figure.steps = kInARow * steps;
  }
  take_turns(variants, DeviceClock(setting.device()), options.seconds, loop != nullptr, table);
  if (setting.device().is_cuda() && !block.captures()) {
    std::printf("\nNo step of the line above was captured.\n\n");
  }
}

/// Whether all was measured that the device has room for.
bool run(const Options& options) {
  const bool cuda = options.device == "cuda";
  if (cuda) {
    std::printf("fedhpc %s, LibTorch %s, %s\n\n", build_info().commit.c_str(),
                build_info().torch.c_str(), gpu_library().version().c_str());
    gpu_library().use_(0);
    device_kernels();
  }
  const at::Device device = cuda ? current_cuda_device() : at::Device(at::kCPU);
  std::map<std::string, double> peaks;
  for (const std::string& precision : options.precision) {
    peaks[precision] = measured_peak(device, precision_of(precision), options.peak_side);
    std::printf("Peak in %s by products of %lld x %lld: %.4g GFLOP/s\n", precision.c_str(),
                static_cast<long long>(options.peak_side),
                static_cast<long long>(options.peak_side), 1e-9 * peaks[precision]);
  }
  std::printf("\n");
  TrainingTable table(options.device, options.csv == "-" ? "" : options.csv);
  bool measured = true;
  for (const TrainingCase& which : training_cases()) {
    if (std::ranges::find(options.models, which.name) == options.models.end()) continue;
    for (const std::int64_t clients : options.clients) {
      free_cached_memory(device);
      const TrainingSetting setting(which, clients, options.batch, device);
      for (const std::string& precision : options.precision) {
        try {
          free_cached_memory(device);
          compare(setting, options, precision, peaks[precision], table);
        } catch (const std::exception& error) {
          std::string what = error.what();
          what.resize(std::min(what.size(), what.find('\n')));
          std::printf("| - | %s | %lld | %s | not measured: %s | | | | | |\n", which.name.c_str(),
                      static_cast<long long>(clients), precision.c_str(), what.c_str());
          std::fflush(stdout);
          measured = measured && (dynamic_cast<const NoRoom*>(&error) != nullptr ||
                                  what.find("out of memory") != std::string::npos);
        }
      }
    }
  }
  return measured;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  try {
    return run(read(argc, argv)) ? 0 : 1;
  } catch (const fedhpc::ConfigError& error) {
    std::fprintf(stderr, "device_training: error: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_training: error: %s\n", error.what());
    return 1;
  }
}
