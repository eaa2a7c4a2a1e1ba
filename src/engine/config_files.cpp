// Files that a run reads: a relative path means one in the working directory or beside the
// configuration (docs/decisions/0025).

#include <filesystem>
#include <optional>
#include <utility>

#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/plugins.hpp"

#include "core/plain_path.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;

/// Where a relative path may lead.
std::pair<fs::path, fs::path> candidates(const std::string& folder, const std::string& path) {
  return {plain_path(fs::current_path() / path), plain_path(fs::path(folder) / path)};
}

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

bool is_folder(const fs::path& path) {
  std::error_code failed;
  return fs::is_directory(path, failed);
}

/// The absolute path of what a relative path of `key` means; nothing where it is nowhere. Throws
/// ConfigError where it may mean two.
std::optional<std::string> find_file(const std::string& key, const Origin& origin,
                                     const std::string& folder, const std::string& path,
                                     bool of_folder = false) {
  if (fs::path(path).is_absolute()) return path;
  const auto [here, beside] = candidates(folder, path);
  const bool is_here = is_there(here) && is_folder(here) == of_folder;
  const bool is_beside = is_there(beside) && is_folder(beside) == of_folder;
  std::error_code failed;
  if (is_here && is_beside && !fs::equivalent(here, beside, failed)) {
    throw ConfigError(concat(origin.place, ": key '", key, "': '", path, "' may be ", here.string(),
                             " and ", beside.string(),
                             "; give the whole path of the one that is meant"));
  }
  if (is_here || is_beside) return (is_here ? here : beside).string();
  return std::nullopt;
}

/// Throws ConfigError for a relative path of a file that is found nowhere.
void require_somewhere(const std::string& key, const Origin& origin, const std::string& folder,
                       const std::string& path) {
  if (path.empty() || fs::path(path).is_absolute()) return;
  const auto [here, beside] = candidates(folder, path);
  if (is_there(here) || is_there(beside)) return;  // whoever opens it says what it is
  throw ConfigError(concat(origin.place, ": key '", key, "': no such file as '", path,
                           "'; looked for ", here.string(),
                           here == beside ? "" : concat(" and ", beside.string())));
}

}  // namespace

std::string Config::folder_of(const Origin& origin) const {
  return origin.file.empty() ? folder_ : fs::absolute(origin.file).parent_path().string();
}

void Config::load_plugins(const std::vector<Assignment>& assignments) const {
  const std::string key = "run.plugin";
  OptionSet early;  // which keys there are besides is not known yet
  std::vector<std::string> files;
  RunOptions::declare_plugins(early, files);
  for (const Assignment& one : assignments) {
    if (one.key == key) early.assign(one.key, one.value, one.origin);
  }
  const Origin& origin = early.origin(key);
  const std::string folder = folder_of(origin);
  for (const std::string& file : files) {
    require_somewhere(key, origin, folder, file);
    const std::string path = find_file(key, origin, folder, file).value_or(file);
    try {
      load_plugin(path);
    } catch (const ConfigError& error) {
      throw ConfigError(concat(origin.place, ": key '", key, "': ", error.what()));
    }
  }
}

void Config::find_files() {
  const std::pair<const char*, std::string*> keys[] = {
      {"data.dir", &data.dir},
      {"data.file", &data.file},
      {"data.test_file", &data.test_file},
      {"data.partition_file", &data.partition_file},
      {"model.file", &model.file},
      {"model.init_file", &model.init_file}};
  const auto replace = [&](const char* key, std::string& value, bool of_folder) {
    const Origin& origin = options_.origin(key);
    if (value.empty()) return;
    value = find_file(key, origin, folder_of(origin), value, of_folder).value_or(value);
  };
  for (const auto& [key, value] : keys) replace(key, *value, value == &data.dir);
  for (std::string& file : run.plugins) replace("run.plugin", file, false);
}

void Config::check_files() const {
  for (const char* key :
       {"data.file", "data.test_file", "data.partition_file", "model.file", "model.init_file"}) {
    const Origin& origin = options_.origin(key);
    require_somewhere(key, origin, folder_of(origin), options_.entry(key).print());
  }
}

}  // namespace fedhpc
