#include "fedhpc/rounds/coupling.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/math/products.hpp"

#include "timing.hpp"

// Whole-run driver, under mpirun: memory and time of distances, dots, mixing and columns of clients
// spread over ranks. Fails when a rank's memory goes above the bound: three times its own rows and
// 256 MB, counted from before the rows are made. Usage: mpirun -n 4 coupling [clients] [columns]

namespace {

using fedhpc::Rows;
using fedhpc::Tensor;

constexpr double kMegabyte = 1e6;
constexpr double kAllowance = 256 * kMegabyte;

/// A line "VmHWM:  1234 kB" of this process's status, in bytes.
double status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return 1024 * std::stod(line.substr(name.size() + 1));
  }
  fedhpc::require(false, "the system tells how much memory a process has");
  return 0;
}

/// The peak starts again from what is held now, where the system allows it.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

double slowest(fedhpc::Communicator& comm, double value) {
  Tensor all = at::full({1}, value, at::kDouble);
  comm.max_(all);
  return all.item<double>();
}

/// CPU time of the N_r x N x P products of one rank by float64 matrix products alone [s].
double bare_products(std::int64_t own, std::int64_t clients, std::int64_t columns) {
  constexpr std::int64_t kWidth = 4096;
  Tensor left = at::full({own, clients}, 0.5, at::kDouble);
  Tensor right = at::full({clients, kWidth}, 0.5, at::kDouble);
  Tensor out = at::zeros({own, kWidth}, at::kDouble);
  const auto stack = [](Tensor& t) {
    return fedhpc::MatrixStack{t.data_ptr(), 0, t.size(0), t.size(1), t.size(1)};
  };
  const auto product = [&] {
    fedhpc::batched_product(at::kDouble, 1, 1, stack(left), fedhpc::Transpose::No, stack(right),
                            fedhpc::Transpose::No, 0, stack(out));
  };
  product();
  const double begin = fedhpc::bench::cpu_seconds();
  product();
  return (fedhpc::bench::cpu_seconds() - begin) * static_cast<double>(columns) / kWidth;
}

/// Rows of this rank: clients rank, rank + ranks, ...
Rows make_rows(const std::vector<std::int64_t>& ids, const fedhpc::LayoutPtr& layout) {
  Rows rows{at::empty({std::ssize(ids), layout->size()}, at::kFloat), layout};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    fedhpc::Draws draws({.seed = 1, .client = static_cast<std::uint64_t>(ids[i])});
    float* row = rows.values.data_ptr<float>() + static_cast<std::int64_t>(i) * layout->size();
    for (std::int64_t k = 0; k < layout->size(); ++k) row[k] = static_cast<float>(draws.uniform());
  }
  return rows;
}

class Report {
 public:
  Report(fedhpc::Communicator& comm, double idle, double bound, double products)
      : comm_(comm), idle_(idle), bound_(bound), products_(products) {
    if (comm.rank() != 0) return;
    std::printf("bound: 3 x own rows + 256 MB = %.0f MB a rank above idle (%.0f MB)\n",
                bound / kMegabyte, idle / kMegabyte);
    std::printf("%-18s %14s %14s %10s %10s %16s\n", "", "peak [MB]", "of bound", "wall [s]",
                "CPU [s]", "CPU / products");
  }

  void measure(const char* name, const std::function<void()>& work) {
    comm_.barrier();
    forget_peak();
    const double cpu = fedhpc::bench::cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    const double used = slowest(comm_, fedhpc::bench::cpu_seconds() - cpu);
    const double peak = slowest(comm_, status_bytes("VmHWM") - idle_);
    const double seconds = slowest(comm_, wall.count());
    within_ = within_ && peak < bound_;
    if (comm_.rank() != 0) return;
    std::printf("%-18s %14.0f %13.0f%% %10.2f %10.2f %16.2f\n", name, peak / kMegabyte,
                100 * peak / bound_, seconds, used, used / products_);
    std::fflush(stdout);
  }

  bool within() const { return within_; }

 private:
  fedhpc::Communicator& comm_;
  double idle_;
  double bound_;
  double products_;
  bool within_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  const fedhpc::Session session(&argc, &argv, fedhpc::UseMpi::On);
  at::set_num_threads(1);
  const std::int64_t clients = argc > 1 ? std::max(1L, std::atol(argv[1])) : 1000;
  const std::int64_t columns = argc > 2 ? std::max(1L, std::atol(argv[2])) : 79510;  // DNN 100
  const auto comm = fedhpc::world_communicator(/*timeout_seconds=*/600);

  auto layout = std::make_shared<fedhpc::Layout>();
  layout->add("w", {columns}, columns, fedhpc::Tag::Trainable);
  std::vector<std::int64_t> ids;
  for (std::int64_t id = comm->rank(); id < clients; id += comm->size()) ids.push_back(id);
  const fedhpc::Coupling coupling(*comm, ids);
  const std::int64_t most = (clients + comm->size() - 1) / comm->size();
  const double products = slowest(*comm, bare_products(most, clients, columns));
  const double idle = status_bytes("VmRSS");

  const Rows rows = make_rows(ids, layout);
  const double bound = 3.0 * 4 * static_cast<double>(most * columns) + kAllowance;
  Report report(*comm, idle, bound, products);
  const fedhpc::ColumnRanges all{{0, columns}};
  report.measure("squared_distances", [&] {
    const Tensor found = coupling.squared_distances(rows, rows, all);
    fedhpc::require(found.diagonal().abs().max().item<double>() == 0, "a row is at no distance");
  });
  report.measure("dots", [&] { coupling.dots(rows, rows, all); });
  report.measure("mix", [&] {
    const double share = 1.0 / static_cast<double>(clients);
    const Rows mixed = coupling.mix(at::full({clients, clients}, share, at::kDouble), rows);
    fedhpc::require(ids.empty() || mixed.values[0].mean().sub(0.5).abs().item<double>() < 1e-2,
                    "the mean of uniform numbers is a half");
  });
  report.measure("columns",
                 [&] { coupling.from_columns_(rows, coupling.to_columns(rows).mul(2)); });
  return report.within() ? 0 : 1;
}
