#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fedhpc {

/// Loads the plug-in in the file `path`: what it adds is in the registries then. Does nothing for a
/// file that has been loaded already. Throws ConfigError, one sentence, where there is no such file
/// or no plug-in in it; where it was built for another fedhpc, of which none of its code runs;
/// where it cannot be loaded, fails, or adds a name that is there already, of which nothing is
/// added; and where the file has changed since it was loaded.
void load_plugin(const std::string& path);

/// From now on `load` loads plug-ins whose names end in `ending` (".py"): it is given the whole
/// path, again where the file has changed. What it throws refuses the plug-in.
void set_plugin_language(const std::string& ending,
                         std::function<void(const std::string& path)> load);

/// Returns a checksum of the libraries among plug-ins that have been loaded from the files `paths`;
/// empty where there is none.
std::string digest_of_libraries(const std::vector<std::string>& paths);

/// Returns what the plug-in in a file was built for, without loading it; nothing where the file is
/// no plug-in. Throws ConfigError if it cannot be read.
std::optional<std::string> plugin_built_for(const std::string& path);

/// Returns what plug-ins have to be built for here.
std::string plugins_built_for();

}  // namespace fedhpc
