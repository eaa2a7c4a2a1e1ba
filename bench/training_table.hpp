#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "fedhpc/core/error.hpp"

#include "timing.hpp"

namespace fedhpc::bench {

/// What was measured of one way to train: device_training.py prints the same columns.
struct TrainingFigure {
  std::string variant = {};
  std::string model;
  std::int64_t clients = 0;  ///< of a block, or of the loop
  std::string precision;
  std::int64_t steps = 0;            ///< of a client and call
  std::vector<double> seconds = {};  ///< of a call
  double flops = 0;                  ///< of a client-step
  double peak = 0;                   ///< flops a second
};

/// Prints figures as a Markdown table while they come and writes them to a CSV file.
class TrainingTable {
 public:
  /// `path`: of the CSV file; empty for none.
  TrainingTable(std::string device, const std::string& path) : device_(std::move(device)) {
    if (!path.empty()) {
      file_.open(path);
      if (!file_) throw Error("cannot write " + path);
      file_ << "variant,model,clients,precision,device,steps,repetitions,client_steps_per_s,"
               "lowest,highest,gflops,peak_gflops,of_peak,times_loop\n";
    }
    std::printf(
        "| variant | model | clients | precision | client-steps/s | lowest | highest | GFLOP/s | "
        "of "
        "peak | x LibTorch loop |\n|---|---|---:|---|---:|---:|---:|---:|---:|---:|\n");
  }

  /// `loop`: client-steps a second of the loop over clients, or 0.
  void add(const TrainingFigure& figure, double loop) {
    const double work = static_cast<double>(figure.clients * figure.steps);
    const auto [least, most] = std::minmax_element(figure.seconds.begin(), figure.seconds.end());
    const double rate = work / median(figure.seconds);
    const double gflops = 1e-9 * rate * figure.flops;
    const double of_peak = 1e9 * gflops / figure.peak;
    const std::string times = loop > 0 ? text("%.2f", rate / loop) : "";
    std::printf("| %s | %s | %lld | %s | %.4g | %.4g | %.4g | %.4g | %.3f | %s |\n",
                figure.variant.c_str(), figure.model.c_str(),
                static_cast<long long>(figure.clients), figure.precision.c_str(), rate,
                work / *most, work / *least, gflops, of_peak, times.c_str());
    std::fflush(stdout);
    if (!file_.is_open()) return;
    file_ << figure.variant << ',' << figure.model << ',' << figure.clients << ','
          << figure.precision << ',' << device_ << ',' << figure.steps << ','
          << figure.seconds.size() << ',' << text("%.6g", rate) << ',' << text("%.6g", work / *most)
          << ',' << text("%.6g", work / *least) << ',' << text("%.6g", gflops) << ','
          << text("%.6g", 1e-9 * figure.peak) << ',' << text("%.4f", of_peak) << ',' << times
          << std::endl;
  }

 private:
  static std::string text(const char* format, double number) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, format, number);
    return buffer;
  }

  std::string device_;
  std::ofstream file_;
};

}  // namespace fedhpc::bench
