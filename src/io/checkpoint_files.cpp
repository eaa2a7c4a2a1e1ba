#include "fedhpc/io/checkpoint_files.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/io/durable.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".ckpt.";
constexpr const char* kSuffix = ".h5";
constexpr const char* kUnfinished = ".h5.tmp";
constexpr const char* kLock = ".lock";

/// "RUN" of "folder/RUN.h5".
std::string stem_of(const std::string& results) {
  const std::string name = fs::path(results).filename().string();
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - 3) : name;
}

/// The round in "STEM.ckpt.ROUND<suffix>", or -1.
std::int64_t round_in(const std::string& name, const std::string& stem, const std::string& suffix) {
  const std::string prefix = stem + kMark;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return -1;
  if (name.size() <= prefix.size() + suffix.size()) return -1;
  const char* begin = name.data() + prefix.size();
  const char* end = name.data() + name.size() - suffix.size();
  std::int64_t round = -1;
  const auto result = std::from_chars(begin, end, round);
  return result.ec == std::errc{} && result.ptr == end && round >= 0 ? round : -1;
}

std::vector<CheckpointFile> named(const std::string& results, const std::string& suffix) {
  const std::string stem = stem_of(results);
  const std::string folder = folder_of(results);
  std::vector<CheckpointFile> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    const std::int64_t round = round_in(name, stem, suffix);
    if (round >= 0) found.push_back({(fs::path(results).parent_path() / name).string(), round});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.round > b.round; });
  return found;
}

}  // namespace

std::string checkpoint_path(const std::string& results, std::int64_t round) {
  const fs::path folder = fs::path(results).parent_path();
  return (folder / concat(stem_of(results), kMark, round, kSuffix)).string();
}

std::string lock_path(const std::string& results) {
  return (fs::path(results).parent_path() / (stem_of(results) + kLock)).string();
}

std::string of_the_same_checkpoints(const std::string& results) {
  const bool short_name = !results.ends_with(kSuffix);
  return short_name ? results + kSuffix : results.substr(0, results.size() - 3);
}

bool is_name_beside(const std::string& results) {
  return !results_of_checkpoint(results).path.empty() || results.ends_with(".tmp") ||
         results.ends_with(kLock);
}

std::string set_aside(const std::string& results, std::int64_t after) {
  std::error_code failed;
  const bool present = fs::exists(results, failed);
  std::vector<CheckpointFile> checkpoints = checkpoints_of(results);
  std::erase_if(checkpoints, [&](const CheckpointFile& file) { return file.round <= after; });
  if (!present && checkpoints.empty()) return {};
  const std::string name = fs::path(results).filename().string();
  const std::string suffix = name.substr(stem_of(results).size());
  std::string free;
  for (int number = 1; free.empty(); ++number) {
    const std::string aside = concat(stem_of(results), ".old", number, suffix);
    const std::string path = (fs::path(results).parent_path() / aside).string();
    if (!fs::exists(path) && checkpoints_of(path).empty()) free = path;
  }
  try {
    if (present) fs::rename(results, free);
    for (const CheckpointFile& file : checkpoints) {
      fs::rename(file.path, checkpoint_path(free, file.round));
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(concat("the earlier result cannot be set aside: ", error.code().message()));
  }
  return free;
}

std::vector<CheckpointFile> checkpoints_of(const std::string& results) {
  return named(results, kSuffix);
}

CheckpointFile results_of_checkpoint(const std::string& path) {
  const fs::path whole(path);
  const std::string name = whole.filename().string();
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos || mark == 0) return {};
  const std::string stem = name.substr(0, mark);
  const std::int64_t round = round_in(name, stem, kSuffix);
  if (round < 0) return {};
  return {(whole.parent_path() / (stem + kSuffix)).string(), round};
}

void remove_checkpoints(const std::string& results, const std::vector<std::string>& keep) {
  std::vector<CheckpointFile> present = named(results, kSuffix);
  for (CheckpointFile& unfinished : named(results, kUnfinished)) present.push_back(unfinished);
  for (const CheckpointFile& file : present) {
    if (std::find(keep.begin(), keep.end(), file.path) != keep.end()) continue;
    std::error_code ignored;
    if (fs::remove(file.path, ignored)) {
      run_log().debug("checkpoint '", file.path, "' is removed");
    }
  }
}

}  // namespace fedhpc
