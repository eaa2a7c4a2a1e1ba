#include "fedhpc/io/hdf5.hpp"

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>

#include "fedhpc/io/file_lock.hpp"
#include "fedhpc/io/seal.hpp"

#include "io/hdf5_internal.hpp"
#include "io/hdf5_probe.hpp"

namespace fedhpc::h5 {

std::string last_reason() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
        auto& first = *static_cast<std::string*>(data);
        if (first.empty() && error->desc != nullptr) first = error->desc;
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  // Of the system's refusals HDF5 lists every argument; the reason among them is what a person
  // needs.
  const std::string mark = "error message = '";
  if (const auto begin = text.find(mark); begin != std::string::npos) {
    text = text.substr(begin + mark.size());
    text = text.substr(0, text.find('\''));
  }
  return text.empty() ? "unknown reason" : text;
}

Handle own(hid_t id, Handle::Close close, const std::string& what) {
  if (id < 0) throw Error(concat("HDF5: ", what, ": ", last_reason()));
  return {id, close};
}

void check(herr_t status, const std::string& what) {
  if (status < 0) throw Error(concat("HDF5: ", what, ": ", last_reason()));
}

void each_attribute(const Handle& object, const std::string& path,
                    const std::function<void(const Handle&, const char*)>& visit) {
  struct Visit {
    const std::function<void(const Handle&, const char*)>& visit;
    const std::string what;
    std::exception_ptr thrown{};  // it cannot pass through HDF5
  } now{visit, "attributes of '" + path + "'"};
  const auto next = [](hid_t of, const char* name, const H5A_info_t*, void* data) -> herr_t {
    auto& current = *static_cast<Visit*>(data);
    try {
      current.visit(own(H5Aopen(of, name, H5P_DEFAULT), H5Aclose, current.what), name);
      return 0;
    } catch (...) {
      current.thrown = std::current_exception();
      return -1;
    }
  };
  hsize_t first = 0;
  const herr_t status = H5Aiterate2(object.id(), H5_INDEX_NAME, H5_ITER_INC, &first, next, &now);
  if (now.thrown) std::rethrow_exception(now.thrown);
  check(status, now.what);
}

Handle link_properties() {
  Handle properties = own(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "link properties");
  check(H5Pset_create_intermediate_group(properties.id(), 1), "link properties");
  return properties;
}

namespace {

/// The library prints its error stack by default; ours are exceptions.
void silence() {
  thread_local const bool silenced = [] {
    return H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  }();
  static_cast<void>(silenced);
}

int descriptor_of(const Handle& file) {
  void* descriptor = nullptr;
  check(H5Fget_vfd_handle(file.id(), H5P_DEFAULT, &descriptor), "descriptor of a file");
  return *static_cast<int*>(descriptor);
}

Handle open_with(const Handle& access, const std::string& path, Mode mode, std::size_t user_block) {
  if (mode == Mode::Create || mode == Mode::CreateLive || mode == Mode::CreatePortable) {
    // Names are listed in order of creation: the order of parameters in a row.
    const Handle creation = own(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file properties");
    check(H5Pset_userblock(creation.id(), user_block), "user block");
    if (mode == Mode::CreateLive) {
      check(H5Pset_file_space_strategy(creation.id(), H5F_FSPACE_STRATEGY_PAGE, /*persist=*/false,
                                       /*threshold=*/1),
            "file pages");
      check(H5Pset_file_space_page_size(creation.id(), kPage), "file pages");
    }
    return own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), H5Fclose,
               "cannot create '" + path + "'");
  }
  unsigned flags = H5F_ACC_RDONLY;
  if (mode == Mode::ReadSwmr) flags = H5F_ACC_RDONLY | H5F_ACC_SWMR_READ;
  if (mode == Mode::ReadWrite) flags = H5F_ACC_RDWR;
  return own(H5Fopen(path.c_str(), flags, access.id()), H5Fclose, "cannot open '" + path + "'");
}

}  // namespace

herr_t Handle::reset() noexcept {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  return id >= 0 && close_ != nullptr ? close_(id) : 0;
}

void check_input(const std::string& path) {
  silence();
  std::error_code failed;
  const auto kind = std::filesystem::status(path, failed).type();
  if (kind == std::filesystem::file_type::not_found) throw Error("there is no such file");
  if (kind != std::filesystem::file_type::regular) throw Error("it is not a file");
  if (access(path.c_str(), R_OK) != 0) throw Error("no permission to read it");
  if (is_hdf5(path) != true) throw Error("it is not an HDF5 file");
}

std::optional<bool> is_hdf5(const std::string& path) {
  silence();
  const htri_t found = H5Fis_hdf5(path.c_str());
  return found < 0 ? std::nullopt : std::optional(found > 0);
}

std::string library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return concat(major, ".", minor, ".", release);
}

Handle open_file(const std::string& path, Mode mode, std::size_t user_block) {
  silence();
  const Handle access = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access properties");
  // What is written can be read by HDF5 1.10, whichever version writes it.
  const bool reads = mode == Mode::Read || mode == Mode::ReadSwmr;
  check(H5Pset_libver_bounds(access.id(),
                             mode == Mode::CreatePortable ? H5F_LIBVER_EARLIEST : H5F_LIBVER_V110,
                             reads ? H5F_LIBVER_LATEST : H5F_LIBVER_V110),
        "file format");
  if (mode == Mode::ReadSwmr || mode == Mode::CreateLive) {
    // A part that a run is just writing is whole a moment later; a damaged one never is, and the
    // library waits twice as long after each attempt.
    constexpr unsigned kAttempts = 8;
    check(H5Pset_metadata_read_attempts(access.id(), kAttempts), "attempts to read");
  }
  try {
    return open_with(access, path, mode, user_block);
  } catch (const Error&) {
    if (has_locks(path)) throw;
  }
  check(H5Pset_file_locking(access.id(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true),
        "file locks");
  return open_with(access, path, mode, user_block);
}

Handle open_whole(const std::string& path, const Tick& tick) {
  check_input(path);
  switch (check_seal(path, tick)) {
    case Seal::Whole:
      break;
    case Seal::Broken:
      throw Error("it is damaged: its bytes are not those that were written");
    case Seal::None:
      if (const std::string damage = damage_of(path); !damage.empty()) throw Error(damage);
  }
  return open_file(path, Mode::Read);
}

Handle open_input(const std::string& path) {
  check_input(path);
  const std::string damage = damage_of(path);
  if (!damage.empty()) throw Error(damage);
  return open_any(path);
}

Handle open_any(const std::string& path) {
  silence();
  try {
    return open_file(path, Mode::Read);
  } catch (const Error&) {
    return open_file(path, Mode::ReadSwmr);
  }
}

std::int64_t bytes_of(const Handle& file) {
  hsize_t bytes = 0;
  check(H5Fget_filesize(file.id(), &bytes), "cannot tell the size of a file");
  return static_cast<std::int64_t>(bytes);
}

bool was_closed(const Handle& file) {
  unsigned intent = 0;
  check(H5Fget_intent(file.id(), &intent), "cannot tell how a file was opened");
  return (intent & H5F_ACC_SWMR_READ) == 0;
}

bool exists(const Handle& location, const std::string& path) {
  // H5Lexists needs every step of the path to exist.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (H5Lexists(location.id(), part.c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

Handle create_group(const Handle& location, const std::string& path) {
  const Handle links = link_properties();
  const Handle creation = own(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group properties");
  check(H5Pset_link_creation_order(creation.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
        "group properties");
  return own(H5Gcreate2(location.id(), path.c_str(), links.id(), creation.id(), H5P_DEFAULT),
             H5Gclose, "cannot create group '" + path + "'");
}

Handle open_group(const Handle& location, const std::string& path) {
  return own(H5Gopen2(location.id(), path.c_str(), H5P_DEFAULT), H5Gclose,
             "cannot open group '" + path + "'");
}

void flush_file(const Handle& file) {
  check(H5Fflush(file.id(), H5F_SCOPE_GLOBAL), "cannot flush the file");
}

void sync_file(const Handle& file) {
  flush_file(file);
  // The descriptor that wrote it: another one need not be told of a byte that is lost already.
  if (fsync(descriptor_of(file)) == 0) return;
  throw Error(concat("HDF5: cannot write the file to disk: ", std::strerror(errno)));
}

void close_file(Handle file) {
  sync_file(file);
  check(file.reset(), "cannot close the file");
}

void release_lock(const Handle& file) { flock(descriptor_of(file), LOCK_UN); }

std::vector<std::string> names_in(const Handle& location, const std::string& path) {
  const Handle group = open_group(location, path);
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* data) -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  // A file of another program may not track the order of creation; then the names' order serves.
  if (H5Literate(group.id(), H5_INDEX_CRT_ORDER, H5_ITER_INC, nullptr, collect, &names) < 0) {
    H5Eclear2(H5E_DEFAULT);
    names.clear();
    check(H5Literate(group.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names),
          "cannot list group '" + path + "'");
  }
  return names;
}

}  // namespace fedhpc::h5
