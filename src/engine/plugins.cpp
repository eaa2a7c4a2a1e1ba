#include "fedhpc/engine/plugins.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <link.h>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include "fedhpc/plugin.hpp"

#include "core/digest.hpp"
#include "core/thrown.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = FEDHPC_PLUGIN_MARK;
constexpr std::string_view kElf =
    "\x7f"
    "ELF";
constexpr const char* kEntryPoint = "fedhpc_plugin";
constexpr const char* kPage = "docs/how-to/add-an-algorithm.md says how to make one";

/// What this process has loaded.
struct Loaded {
  std::map<std::string, std::string> files;                           // their versions by path
  std::map<std::string, std::string> digests;                         // of libraries, by path
  std::map<std::pair<std::string, std::string>, std::string> adders;  // by kind and name
  std::map<std::string, std::function<void(const std::string&)>> languages;
};

Loaded& loaded() {
  static Loaded loaded;
  return loaded;
}

ConfigError refusal(const std::string& path, const std::string& because) {
  return ConfigError(concat("plug-in '", path, "' ", because));
}

/// Differs where a file has changed.
std::string version_of(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) {
    throw refusal(path, concat("cannot be read: ", std::strerror(errno)));
  }
  return concat(found.st_dev, ' ', found.st_ino, ' ', found.st_size, ' ', found.st_mtim.tv_sec, ' ',
                found.st_mtim.tv_nsec);
}

/// The bytes of a file. Throws ConfigError if it cannot be read.
std::string bytes_of(const std::string& path) {
  std::error_code failed;
  const fs::file_status found = fs::status(path, failed);
  if (is_directory(found)) throw refusal(path, concat("is a folder; ", kPage));
  if (exists(found) && !is_regular_file(found)) throw refusal(path, concat("is no file; ", kPage));
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  const bool opened = stream.is_open();
  std::string bytes;
  std::array<char, 65536> part;
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    bytes.append(part.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (!opened || stream.bad()) {
    throw refusal(path, concat("cannot be read: ", std::strerror(errno == 0 ? EIO : errno)));
  }
  return bytes;
}

/// The text behind the first mark that one follows: fedhpc's own library has the bare mark.
std::optional<std::string> text_behind_mark(std::string_view bytes) {
  for (std::size_t at = bytes.find(kMark); at != std::string_view::npos;
       at = bytes.find(kMark, at + 1)) {
    const std::string_view rest = bytes.substr(at + kMark.size());
    const std::string_view text = rest.substr(0, rest.find('\0'));
    const bool printable = std::all_of(text.begin(), text.end(),
                                       [](char letter) { return letter >= ' ' && letter <= '~'; });
    if (!text.empty() && text.size() < rest.size() && printable) return std::string(text);
  }
  return std::nullopt;
}

/// Whether a library has all the bytes that the loader would map. Where some are missing, of a copy
/// that is under way, it would end the process.
bool is_whole(std::string_view bytes) {
  ElfW(Ehdr) header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const std::size_t at = header.e_phoff + i * sizeof segment;
    if (at > bytes.size() || bytes.size() - at < sizeof segment) return false;
    std::memcpy(&segment, bytes.data() + at, sizeof segment);
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > bytes.size() || bytes.size() - segment.p_offset < segment.p_filesz) {
      return false;
    }
  }
  return true;
}

/// Throws ConfigError unless the file is a plug-in that was built for this fedhpc. Returns its
/// checksum.
std::string check_stamp(const std::string& path) {
  const std::string bytes = bytes_of(path);
  if (!bytes.starts_with(kElf)) throw refusal(path, concat("is no shared library; ", kPage));
  const std::optional<std::string> built_for = text_behind_mark(bytes);
  if (!built_for) {
    throw refusal(path, concat("is a library, but no plug-in of fedhpc (there is no FEDHPC_PLUGIN "
                               "in it); ",
                               kPage));
  }
  if (!is_whole(bytes)) throw refusal(path, "is cut off; copy or build it again");
  if (*built_for != plugins_built_for()) {
    throw refusal(path, concat("was built for ", *built_for, ", and this is ", plugins_built_for(),
                               "; build it anew with this fedhpc"));
  }
  Digest digest;
  digest.add(bytes);
  return digest.text();
}

/// Calls what is not ours. Throws ConfigError for whatever it throws.
void call(const std::string& path, const std::function<void()>& foreign) {
  try {
    foreign();
  } catch (const ConfigError& error) {
    throw refusal(path, error.what());
  } catch (...) {
    throw refusal(path, concat("failed when it was loaded: ", what_was_thrown()));
  }
}

/// Makes known what a plug-in adds, all of it or nothing.
void take(const std::string& path, const Plugin& plugin) {
  auto& adders = loaded().adders;
  for (const Plugin::Addition& one : plugin.additions()) {
    const auto other = adders.find({one.kind, one.name});
    if (other == adders.end()) continue;
    throw refusal(path, concat("adds the ", one.kind, " '", one.name, "', which plug-in '",
                               other->second, "' has added; give one of them another name"));
  }
  for (const Plugin::Addition& one : plugin.additions()) {
    one.make_known();
    adders[{one.kind, one.name}] = path;
  }
}

/// A plug-in calls its own functions even where fedhpc has some of the same names: it may have begun
/// as a copy of one of fedhpc's methods. A sanitizer has to stand before all libraries.
constexpr int kOwnNamesFirst =
#ifdef __SANITIZE_ADDRESS__
    0;
#else
    RTLD_DEEPBIND;
#endif

void load_library(const std::string& path) {
  std::string digest = check_stamp(path);
  // For good: classes are in use.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnNamesFirst);
  if (library == nullptr) {
    throw refusal(path, concat("cannot be loaded: ", dlerror(),
                               "; link what it needs, as fedhpc_add_plugin does"));
  }
  void* address = dlsym(library, kEntryPoint);
  if (address == nullptr) {
    throw refusal(path, concat("has no function ", kEntryPoint, "; ", kPage));
  }
  Plugin plugin(path);
  const auto tell = reinterpret_cast<void (*)(Plugin&)>(address);
  call(path, [&] { tell(plugin); });
  take(path, plugin);
  loaded().digests[path] = std::move(digest);
}

/// The language in which a file is written; nothing for a library.
const std::function<void(const std::string&)>* language_of(const std::string& path) {
  for (const auto& [ending, load] : loaded().languages) {
    if (path.ends_with(ending)) return &load;
  }
  if (path.ends_with(".py")) {
    throw refusal(path,
                  "is Python, which this program does not run; call 'python3 -m fedhpc' in "
                  "the place of 'fedhpc'");
  }
  return nullptr;
}

}  // namespace

void Plugin::check(const std::string& kind, const std::string& name, const std::string& sentence,
                   bool own, bool callable) const {
  const auto refuse = [&](const std::string& because) -> ConfigError {
    return ConfigError(concat("adds the ", kind, " '", name, "', ", because));
  };
  const auto of_a_word = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), of_a_word)) {
    throw refuse("whose name has to be a word of letters, digits, - and _");
  }
  if (sentence.empty() || sentence.find_first_of("\t\n") != std::string::npos) {
    throw refuse("whose sentence has to be one line of text");
  }
  if (!callable) throw refuse("whose function is empty");
  if (own) throw refuse("which is fedhpc's own; take another name");
  for (const Addition& one : additions_) {
    if (one.kind == kind && one.name == name) throw refuse("twice; give them two names");
  }
}

std::string Plugin::of_this(const std::string& kind, const std::string& name) const {
  return concat("plug-in '", path_, "': the ", kind, " '", name, "'");
}

void Plugin::construct(const std::string& what, const std::function<void()>& constructor) {
  try {
    constructor();
  } catch (...) {
    throw ConfigError(concat(what, " cannot be made: ", what_was_thrown()));
  }
}

void load_plugin(const std::string& path) {
  std::error_code failed;
  const fs::path real = fs::canonical(path, failed);
  if (failed) throw refusal(path, concat("cannot be read: ", failed.message()));
  const std::string file = real.string();
  const auto* language = language_of(file);
  std::string version = version_of(file);
  const auto known = loaded().files.find(file);
  if (known != loaded().files.end() && known->second == version) return;
  if (language != nullptr) {
    call(file, [&] { (*language)(file); });
  } else if (known != loaded().files.end()) {
    throw refusal(file, "has changed since this process loaded it; start the process anew");
  } else {
    load_library(file);
  }
  loaded().files[file] = std::move(version);
}

void set_plugin_language(const std::string& ending,
                         std::function<void(const std::string& path)> load) {
  loaded().languages[ending] = std::move(load);
}

std::string digest_of_libraries(const std::vector<std::string>& paths) {
  std::string all;
  for (const std::string& path : paths) {
    const auto known = loaded().digests.find(fs::weakly_canonical(path).string());
    if (known != loaded().digests.end()) all += known->second;
  }
  if (all.empty()) return {};
  Digest digest;
  digest.add(all);
  return digest.text();
}

std::optional<std::string> plugin_built_for(const std::string& path) {
  return text_behind_mark(bytes_of(path));
}

std::string plugins_built_for() { return FEDHPC_PLUGIN_BUILT_FOR; }

}  // namespace fedhpc
