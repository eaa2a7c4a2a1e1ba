#include "fedhpc/engine/progress.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <unistd.h>

#include "fedhpc/comm/launcher.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/build_info.hpp"

namespace fedhpc {

std::string shell_word(const std::string& path) {
  const auto harmless = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
           std::strchr("._/+:=@%-", letter) != nullptr;
  };
  if (path.starts_with('-')) return shell_word("./" + path);  // a command would read an option
  if (!path.empty() && std::all_of(path.begin(), path.end(), harmless)) return path;
  std::string quoted = "'";
  for (const char letter : path) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

void say_over(const RunOptions& run, const std::string& status, std::int64_t rounds) {
  if (run.progress == ProgressKind::None) return;
  const std::string path = shell_word(run.output);
  const std::string more =
      status == "complete"
          ? concat(path, " is complete with ", rounds, " rounds; for more of them: fedhpc resume ",
                   path, " --run.rounds=N")
          : concat(path, " has ", status, " after ", rounds, " rounds");
  std::printf("nothing to do: %s\n", more.c_str());
}

std::string readable_bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << bytes << ' ' << units[unit];
  return text.str();
}

std::string readable_seconds(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  std::ostringstream text;
  text << std::setfill('0');
  if (total >= 3600) text << total / 3600 << ':';
  text << std::setw(2) << total / 60 % 60 << ':' << std::setw(2) << total % 60;
  return text.str();
}

namespace {

constexpr double kApart = 0.01;  // accuracies that are shown both

/// Where a process of this host writes; empty where that is not told.
std::string output_of(pid_t process) {
  std::error_code failed;
  return std::filesystem::read_symlink(concat("/proc/", process, "/fd/1"), failed).string();
}

/// 0 where that is not told.
pid_t parent_of(pid_t process) {
  std::ifstream file(concat("/proc/", process, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_ends = text.rfind(')');  // then its state and its parent
  return name_ends == std::string::npos
             ? 0
             : std::atoi(text.c_str() + std::min(name_ends + 4, text.size()));
}

/// Some launchers put a terminal of their own between a rank and wherever its output really goes.
/// So the launcher is asked, where it is on this host: the first process above that has another
/// output. Scripts between the two write where the rank does.
bool shown_on_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  if (!launcher().gives_terminals) return true;
  const std::string own = output_of(getpid());
  std::string target = own;
  for (pid_t above = getppid(); above > 0 && target == own; above = parent_of(above)) {
    target = output_of(above);
  }
  return target != own && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
}

}  // namespace

Progress::Progress(ProgressKind kind, std::int64_t rounds, std::int64_t done, double bytes)
    : kind_(kind),
      rounds_(rounds),
      done_(done),
      accuracy_(std::nan("")),
      rmse_(std::nan("")),
      loss_(std::nan("")),
      bytes_(bytes) {
  if (kind_ == ProgressKind::Auto) {
    kind_ = shown_on_terminal() ? ProgressKind::Bar : ProgressKind::Plain;
  }
}

std::string Progress::line(const RoundReport& report, double seconds) const {
  const double rate = static_cast<double>(report.round - done_) / seconds;
  const double left = static_cast<double>(rounds_ - report.round) / rate;
  std::ostringstream text;
  text << "round " << report.round << '/' << rounds_ << std::fixed << std::setprecision(4)
       << "  loss " << loss_;
  if (!std::isnan(accuracy_)) {
    text << std::setprecision(2) << (only_personal_ ? "  personal accuracy " : "  accuracy ")
         << 100 * accuracy_ << " %";
    if (std::abs(personal_ - accuracy_) > kApart) text << " (personal " << 100 * personal_ << " %)";
  }
  if (!std::isnan(rmse_)) text << "  rmse " << rmse_;
  text << "  " << readable_bytes(bytes_) << std::setprecision(1) << "  " << rate << " rounds/s"
       << "  " << readable_seconds(left) << " left";
  return text.str();
}

void Progress::show(const RoundReport& report) {
  const RoundMetrics& metrics = report.metrics;
  // Without the sign that a NaN may have.
  loss_ = std::isnan(metrics.train_loss) ? std::nan("") : metrics.train_loss;
  for (const double booked : {metrics.bytes_up_client_edge, metrics.bytes_down_client_edge,
                              metrics.bytes_up_edge_cloud, metrics.bytes_down_edge_cloud,
                              metrics.bytes_up_client_cloud, metrics.bytes_down_client_cloud}) {
    if (!std::isnan(booked)) bytes_ += booked;
  }
  if (report.evaluated) {
    const auto shown = [](double global, double personal) {
      return std::isnan(global) ? personal : global;
    };
    accuracy_ = shown(metrics.global_accuracy, metrics.personal_accuracy);
    personal_ = metrics.personal_accuracy;
    only_personal_ = std::isnan(metrics.global_accuracy);
    if (std::isnan(accuracy_)) rmse_ = shown(metrics.global_rmse, metrics.personal_rmse);
  }
  const bool last = report.round == rounds_;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (kind_ == ProgressKind::Plain) {
    if (!report.evaluated) return;
    std::printf("%s\n", line(report, seconds).c_str());
  } else if (kind_ == ProgressKind::Bar) {
    constexpr std::int64_t kWidth = 24;
    constexpr std::chrono::milliseconds kRedraw{100};
    if (!last && now - drawn_ < kRedraw) return;
    drawn_ = now;
    const auto filled = static_cast<std::size_t>(kWidth * report.round / rounds_);
    const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
    // \033[K clears what a longer line left behind.
    std::printf("\r[%s] %s\033[K%s", bar.c_str(), line(report, seconds).c_str(), last ? "\n" : "");
  }
  std::fflush(stdout);
}

void Progress::interrupted(const RoundReport& report, const std::string& results) const {
  if (kind_ == ProgressKind::None) return;
  const std::int64_t round = report.left ? report.round + 1 : report.round;
  std::printf("%sinterrupted %s round %lld/%lld; to go on: fedhpc resume %s\n",
              kind_ == ProgressKind::Bar ? "\n" : "", report.left ? "inside" : "after",
              static_cast<long long>(round), static_cast<long long>(rounds_),
              shell_word(results).c_str());
  std::fflush(stdout);
}

void Progress::complete(const RoundReport& report, const std::string& results) const {
  if (kind_ == ProgressKind::None) return;
  const std::string path = shell_word(results);
  const bool early = report.round < rounds_;
  const std::string how = report.diverged_since > 0
                              ? concat("diverged since round ", report.diverged_since,
                                       early ? ", stopped" : ", at its end")
                              : "complete";
  std::printf("%s%s after round %lld: %s; to look at it: tools/plot.py %s\n",
              early && kind_ == ProgressKind::Bar ? "\n" : "", how.c_str(),
              static_cast<long long>(report.round), path.c_str(), path.c_str());
  std::fflush(stdout);
}

std::string start_up_table(const Config& config, int ranks, std::int64_t block_width) {
  const BuildInfo build = build_info();
  const std::string mpi = running_mpi();
  std::ostringstream text;
  text << "fedhpc " << build.version << " (" << build.commit << ", LibTorch " << build.torch << ", "
       << build.compiler << ", " << build.nccl << ")\n"
       << ranks << (ranks == 1 ? " rank" : " ranks") << (mpi.empty() ? "" : concat(" (", mpi, ")"))
       << ", blocks of " << block_width << (block_width == 1 ? " client" : " clients") << "\n";
  for (const OptionSet::Entry& entry : config.options().entries()) {
    const std::string value = entry.print();
    if (value.empty() || !config.options().acts(entry)) continue;
    text << "  " << std::left << std::setw(30) << entry.key << std::setw(16) << value
         << (entry.origin.level == Level::Default ? "" : " " + entry.origin.place) << '\n';
  }
  return text.str();
}

}  // namespace fedhpc
