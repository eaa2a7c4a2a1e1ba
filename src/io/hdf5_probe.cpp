#include "io/hdf5_probe.hpp"

#include <ctime>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <tuple>

#include "fedhpc/io/time_limit.hpp"

#include "io/hdf5_internal.hpp"

namespace fedhpc::h5 {

namespace {

constexpr double kReadingLimit = 20;  // s of a processor
// HDF5 finds chunk i by going through all before it: of many chunks every so manyth is looked at.
constexpr hsize_t kMostSteps = 10'000'000;
constexpr std::time_t kJustNow = 2;  // s; clocks of file systems may be a little behind

/// The file's bytes, which may become more while it is looked through: a run writes it.
class FileSize {
 public:
  explicit FileSize(const std::string& path) : path_(path) {}

  /// Throws Error unless some bytes of a data set lie inside the file.
  void check_inside(hsize_t address, hsize_t bytes, const std::string& dataset) {
    if (!inside(address, bytes)) bytes_ = std::filesystem::file_size(path_);
    if (inside(address, bytes)) return;
    throw Error("data set '" + dataset + "' lies behind its end: it was cut off");
  }

 private:
  bool inside(hsize_t address, hsize_t bytes) const {
    return address <= bytes_ && bytes <= bytes_ - address;
  }

  const std::string& path_;
  hsize_t bytes_ = 0;
};

/// What a file does not hold itself.
struct Elsewhere : Error {
  using Error::Error;
};

void check_dataset(const Handle& file, const std::string& path, FileSize& size) {
  const Handle dataset = open_dataset(file, path);
  const Handle properties = own(H5Dget_create_plist(dataset.id()), H5Pclose, path);
  const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, path);
  const Handle space = own(H5Dget_space(dataset.id()), H5Sclose, path);
  if (H5Pget_layout(properties.id()) == H5D_CONTIGUOUS) {
    if (H5Pget_external_count(properties.id()) > 0) {
      throw Elsewhere("data set '" + path + "' lies in another file");
    }
    const haddr_t address = H5Dget_offset(dataset.id());
    if (address == HADDR_UNDEF) return;  // never written
    size.check_inside(address, H5Dget_storage_size(dataset.id()), path);
  }
  if (H5Pget_layout(properties.id()) != H5D_CHUNKED) return;
  hsize_t chunks = 0;
  check(H5Dget_num_chunks(dataset.id(), space.id(), &chunks), path);
  const int rank = H5Sget_simple_extent_ndims(space.id());
  std::vector<hsize_t> offset(static_cast<std::size_t>(std::max(rank, 1)));
  const hsize_t stride = 1 + chunks * chunks / (2 * kMostSteps);
  for (hsize_t left = chunks; left > 0; left -= std::min(left, stride)) {  // the last one too
    unsigned filters = 0;
    haddr_t address = 0;
    hsize_t bytes = 0;
    check(H5Dget_chunk_info(dataset.id(), space.id(), left - 1, offset.data(), &filters, &address,
                            &bytes),
          path);
    if (address != HADDR_UNDEF) size.check_inside(address, bytes, path);
  }
}

void check_attributes(const Handle& object, const std::string& path) {
  each_attribute(object, path, [&path](const Handle& attribute, const char* name) {
    const std::string what = concat("attribute '", name, "' of '", path, "'");
    own(H5Aget_type(attribute.id()), H5Tclose, what);
    own(H5Aget_space(attribute.id()), H5Sclose, what);
  });
}

/// `seen` has the addresses of what has several names: a group may hold itself.
void check_group(const Handle& file, const std::string& group, FileSize& size,
                 std::set<haddr_t>& seen) {
  check_attributes(open_group(file, group), group);
  for (const std::string& name : names_in(file, group)) {
    const std::string path = (group == "/" ? "" : group) + "/" + name;
    H5L_info_t link;
    check(H5Lget_info(file.id(), path.c_str(), &link, H5P_DEFAULT), path);
    if (link.type == H5L_TYPE_SOFT) continue;  // what it leads to has a name of its own
    if (link.type != H5L_TYPE_HARD) throw Elsewhere("'" + path + "' lies in another file");
    H5O_info_t info;
    check(H5Oget_info_by_name2(file.id(), path.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT), path);
    if (info.rc > 1 && !seen.insert(info.addr).second) continue;
    if (info.type == H5O_TYPE_GROUP) {
      check_group(file, path, size, seen);
    } else if (info.type == H5O_TYPE_DATASET) {
      check_attributes(open_dataset(file, path), path);
      check_dataset(file, path, size);
    }
  }
}

/// Tells one content of a file from the next.
using FileState = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;

/// Nothing for a file that has just been written: the next change may bear the same time.
std::optional<FileState> state_of(const std::string& path) {
  struct stat now {};
  if (stat(path.c_str(), &now) != 0 || std::time(nullptr) - now.st_ctim.tv_sec < kJustNow) {
    return std::nullopt;
  }
  return FileState{now.st_dev,          now.st_ino,         now.st_size,        now.st_mtim.tv_sec,
                   now.st_mtim.tv_nsec, now.st_ctim.tv_sec, now.st_ctim.tv_nsec};
}

/// Files in which no damage was found.
class SoundFiles {
 public:
  bool contain(const FileState& file) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return files_.contains(file);
  }
  void add(const FileState& file) {
    const std::lock_guard<std::mutex> lock(mutex_);
    files_.insert(file);
  }

 private:
  std::mutex mutex_;
  std::set<FileState> files_;
};

}  // namespace

std::string damage_of(const std::string& path) {
  static SoundFiles sound;
  const std::optional<FileState> state = state_of(path);
  if (state && sound.contain(*state)) return {};
  const auto found = within_time(kReadingLimit, [&]() -> std::string {
    try {
      FileSize size(path);
      std::set<haddr_t> seen;
      check_group(open_any(path), "/", size, seen);
    } catch (const Elsewhere& error) {
      return concat("it is not whole: ", error.what(), "; copy it into this one");
    } catch (const Error& error) {
      return concat("it is damaged: ", error.what());
    }
    return {};
  });
  if (state && found == "") sound.add(*state);
  return found.value_or("it is damaged: HDF5 does not get through it");
}

}  // namespace fedhpc::h5
