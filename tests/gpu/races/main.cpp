// All kernels by as many threads as a card has, for ThreadSanitizer to look at.
//
//   kernel_races                   runs all cases and compares with one thread; prints which kernels have run
//   kernel_races CASE [LEFT_OUT]   runs one, or a planted kernel, without each group's LEFT_OUTth sync() and team_sync()

#include <cstdlib>
#include <cxxabi.h>
#include <iostream>
#include <set>
#include <string>
#include <typeinfo>

#include "gpu/kernels/host_launcher.hpp"
#include "gpu/kernels/table.hpp"
#include "gpu/races/cases.hpp"
#include "gpu/races/planted.hpp"

namespace fedhpc::test {

namespace {

using CardLauncher = ThreadLauncher<kCardThreads>;

/// Names of the kernels that have run, without namespaces and arguments.
std::set<std::string>& names_of_kernels() {
  static std::set<std::string> names;
  return names;
}

template <typename Kernel>
void note() {
  int status = 0;
  char* const all = abi::__cxa_demangle(typeid(Kernel).name(), nullptr, nullptr, &status);
  const std::string name = std::string(all).substr(0, std::string(all).find('<'));
  std::free(all);
  names_of_kernels().insert(name.substr(name.rfind(':') + 1));
}

struct NotingLauncher : CardLauncher {
  template <typename Kernel>
  void each(std::int64_t count, const Kernel& kernel) const {
    note<Kernel>();
    CardLauncher::each(count, kernel);
  }
  template <typename Kernel>
  void groups(std::int64_t count, int threads, const Kernel& kernel) const {
    note<Kernel>();
    CardLauncher::groups(count, threads, kernel);
  }
  template <typename Kernel>
  void tiles(std::int64_t count, const Kernel& kernel) const {
    note<Kernel>();
    CardLauncher::tiles(count, kernel);
  }
};

template <typename Launcher>
class Table final : public KernelTable<Launcher> {
 public:
  using KernelTable<Launcher>::KernelTable;

  void product(const DeviceProduct&) override {}  // a library's
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>&) override { return nullptr; }
  void use_precision(Precision) override {}
  void forbid_waiting(bool) override {}
  void begin_range(const char*) override {}
  void end_range() override {}
};

bool is_close(double x, double known, DType type) {
  const double allowed = type == DType::Float32 ? 1e-4 : 1e-10;
  return (std::isnan(x) && std::isnan(known)) ||
         std::abs(x - known) <= allowed * std::max(1.0, std::abs(known));
}

/// Whether threads and one thread compute the same.
bool is_right(const Case& of, DType type, bool aligned) {
  Table<NotingLauncher> card;
  Memory memory(type, aligned);
  of.run(card, memory);
  Table<kernels::HostLauncher> host;
  Memory known(type, aligned);
  of.run(host, known);
  const std::vector<double> found = memory.all();
  const std::vector<double> expected = known.all();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (is_close(found[i], expected[i], type)) continue;
    std::cout << of.name << ", " << (type == DType::Float32 ? "float32" : "float64")
              << (aligned ? ", aligned" : "") << ": number " << i << " of " << expected.size()
              << " is " << found[i] << " and should be " << expected[i] << '\n';
    return false;
  }
  return true;
}

int run_all(const std::vector<Case>& cases) {
  bool right = run_planted("neighbours", CardLauncher{});
  for (const Case& one : cases) {
    right = is_right(one, DType::Float32, true) && right;
    right = is_right(one, DType::Float64, false) && right;
  }
  std::cout << "kernels:";
  for (const std::string& name : names_of_kernels()) std::cout << ' ' << name;
  std::cout << '\n';
  return right ? 0 : 1;
}

int run_one(const std::vector<Case>& cases, const std::string& name, int left_out) {
  for (const Case& one : cases) {
    if (one.name != name) continue;
    Table<NotingLauncher> card(NotingLauncher{{.left_out = left_out}});
    Memory memory(DType::Float32, true);
    one.run(card, memory);
    return 0;
  }
  return run_planted(name, CardLauncher{.left_out = left_out}) ? 0 : 2;
}

}  // namespace

}  // namespace fedhpc::test

int main(int argc, char** argv) {
  using namespace fedhpc::test;
  std::vector<Case> cases = math_cases();
  for (const Case& one : layer_cases()) cases.push_back(one);
  if (argc == 1) return run_all(cases);
  return run_one(cases, argv[1], argc > 2 ? std::atoi(argv[2]) : 0);
}
