// Files that a run reads: a relative path means one in the working directory or beside the
// configuration (docs/decisions/0025).

#include <filesystem>
#include <utility>

#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/config.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;

/// Where a relative path may lead.
std::pair<fs::path, fs::path> candidates(const std::string& folder, const std::string& path) {
  return {(fs::current_path() / path).lexically_normal(),
          (fs::path(folder) / path).lexically_normal()};
}

bool is_there(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

bool is_folder(const fs::path& path) {
  std::error_code failed;
  return fs::is_directory(path, failed);
}

}  // namespace

std::string Config::folder_of(const std::string& key) const {
  const std::string& file = options_.origin(key).file;
  return file.empty() ? folder_ : fs::absolute(file).parent_path().string();
}

void Config::find_files() {
  const std::pair<const char*, std::string*> keys[] = {
      {"data.dir", &data.dir},
      {"data.file", &data.file},
      {"data.test_file", &data.test_file},
      {"data.partition_file", &data.partition_file},
      {"model.init_file", &model.init_file}};
  for (const auto& [key, value] : keys) {
    if (value->empty() || fs::path(*value).is_absolute()) continue;
    const bool folder = value == &data.dir;
    const auto [here, beside] = candidates(folder_of(key), *value);
    const bool is_here = is_there(here) && is_folder(here) == folder;
    const bool is_beside = is_there(beside) && is_folder(beside) == folder;
    std::error_code failed;
    if (is_here && is_beside && !fs::equivalent(here, beside, failed)) {
      throw ConfigError(concat(options_.origin(key).place, ": key '", key, "': '", *value,
                               "' may be ", here.string(), " and ", beside.string(),
                               "; give the whole path of the one that is meant"));
    }
    if (is_here || is_beside) *value = (is_here ? here : beside).string();
  }
}

void Config::check_files() const {
  for (const char* key :
       {"data.file", "data.test_file", "data.partition_file", "model.init_file"}) {
    const std::string value = options_.entry(key).print();
    if (value.empty() || fs::path(value).is_absolute()) continue;
    const auto [here, beside] = candidates(folder_of(key), value);
    if (is_there(here) || is_there(beside)) continue;  // whoever opens it says what it is
    throw ConfigError(concat(options_.origin(key).place, ": key '", key, "': no such file as '",
                             value, "'; looked for ", here.string(),
                             here == beside ? "" : concat(" and ", beside.string())));
  }
}

}  // namespace fedhpc
