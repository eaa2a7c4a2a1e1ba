#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/registry.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/version.hpp"

namespace fedhpc {

/// A plug-in tells one of these what it adds; see FEDHPC_PLUGIN. Every call takes a name for
/// configurations and a sentence for `fedhpc list`. Throws ConfigError for a name that is fedhpc's
/// own or given twice, or that is no word of letters, digits, - and _. What was told is known once
/// the whole plug-in has been heard.
class Plugin {
 public:
  struct Addition {
    std::string kind;  ///< "algorithm"
    std::string name;
    std::function<void()> make_known;
  };

  /// Of the plug-in in the file `path`.
  explicit Plugin(std::string path) : path_(std::move(path)) {}

  /// Adds a method, a class derived from Algorithm: a value of algorithm.name.
  template <typename Method>
  void add_algorithm(std::string name, std::string sentence) {
    const std::function make = [what = of_this("algorithm", name)] {
      std::unique_ptr<Algorithm> method;
      construct(what, [&] { method.reset(new Method); });
      return method;
    };
    add("algorithm", algorithm_registry(), std::move(name), std::move(sentence), make);
  }
  /// Adds a model family: a value of model.name.
  void add_model(std::string name, std::string sentence, std::function<MakeModel> make) {
    add("model", model_registry(), std::move(name), std::move(sentence), std::move(make));
  }
  /// Adds a data set: a value of data.name.
  void add_dataset(std::string name, std::string sentence,
                   std::function<std::unique_ptr<Dataset>(const DataOptions&)> open) {
    add("data set", dataset_registry(), std::move(name), std::move(sentence), std::move(open));
  }
  /// Adds a partitioner: a value of data.partition.
  void add_partitioner(std::string name, std::string sentence,
                       std::function<Partition(const DataOptions&, const Dataset&)> partition) {
    add("partitioner", partitioner_registry(), std::move(name), std::move(sentence),
        std::move(partition));
  }
  /// Adds a codec: a value of algorithm.codec.
  void add_codec(std::string name, std::string sentence,
                 std::function<std::unique_ptr<Codec>(const CodecChoice&)> make) {
    add("codec", codec_registry(), std::move(name), std::move(sentence), std::move(make));
  }
  /// Adds a factorisation: a value of model.factorisation, for methods whose traits name it.
  void add_factorisation(std::string name, std::string sentence,
                         std::function<MakeFactorisation> make) {
    add("factorisation", factorisation_registry(), std::move(name), std::move(sentence),
        std::move(make));
  }

  /// In the order they were told.
  const std::vector<Addition>& additions() const { return additions_; }

 private:
  template <typename Make>
  void add(const std::string& kind, Registry<Make>& registry, std::string name,
           std::string sentence, std::function<Make> make) {
    bool own = false;
    for (const auto& entry : registry) own |= entry.name == name && !entry.added;
    check(kind, name, sentence, own, make != nullptr);
    make = never_null(of_this(kind, name), std::move(make));
    additions_.push_back({kind, name, [=, &registry] { registry.add(name, sentence, make); }});
  }
  void check(const std::string& kind, const std::string& name, const std::string& sentence,
             bool own, bool callable) const;
  /// "plug-in 'PATH': the codec 'NAME'".
  std::string of_this(const std::string& kind, const std::string& name) const;
  /// Calls a constructor. Throws ConfigError for whatever it throws.
  static void construct(const std::string& what, const std::function<void()>& constructor);
  /// `make`, or a ConfigError where that gives null.
  template <typename Made, typename... Arguments>
  static std::function<Made(Arguments...)> never_null(const std::string& what,
                                                      std::function<Made(Arguments...)> make) {
    if constexpr (requires(const Made& made) { made == nullptr; }) {
      return [what, make = std::move(make)](Arguments... arguments) {
        Made made = make(std::forward<Arguments>(arguments)...);
        if (made == nullptr) throw ConfigError(what + " was not made: its function gave null");
        return made;
      };
    } else {
      return make;
    }
  }

  std::string path_;
  std::vector<Addition> additions_;
};

}  // namespace fedhpc

#define FEDHPC_TEXT_OF(value) #value
#define FEDHPC_TEXT(value) FEDHPC_TEXT_OF(value)
#if defined(_LIBCPP_ABI_VERSION)
#define FEDHPC_STANDARD_LIBRARY "libc++ of ABI " FEDHPC_TEXT(_LIBCPP_ABI_VERSION)
#elif defined(_GLIBCXX_DEBUG)
#define FEDHPC_STANDARD_LIBRARY "libstdc++ in debug mode"
#elif _GLIBCXX_USE_CXX11_ABI
#define FEDHPC_STANDARD_LIBRARY "libstdc++"
#else
#define FEDHPC_STANDARD_LIBRARY "libstdc++ of the old ABI"
#endif

/// The layouts of the classes that fedhpc and a plug-in share follow from these.
#define FEDHPC_PLUGIN_BUILT_FOR                                                     \
  "fedhpc " FEDHPC_VERSION " (headers " FEDHPC_HEADERS "), LibTorch " TORCH_VERSION \
  ", " FEDHPC_STANDARD_LIBRARY
/// Stands in front of that text in the file of a plug-in, where it is read before the file is loaded.
#define FEDHPC_PLUGIN_MARK "@(#)fedhpc plug-in for: "

/// Makes a shared library a plug-in, once in all its sources:
///
///     FEDHPC_PLUGIN(plugin) {
///       plugin.add_algorithm<ServerMomentum>("server_momentum", "what it is (who, where, when)");
///     }
///
/// `run.plugin = libNAME.so` loads it. An exception that leaves the body refuses the whole plug-in.
#define FEDHPC_PLUGIN(plugin)                                                     \
  extern "C" {                                                                    \
  extern __attribute__((visibility("default"))) const char fedhpc_plugin_stamp[]; \
  const char fedhpc_plugin_stamp[] = FEDHPC_PLUGIN_MARK FEDHPC_PLUGIN_BUILT_FOR;  \
  __attribute__((visibility("default"))) void fedhpc_plugin(::fedhpc::Plugin&);   \
  }                                                                               \
  void fedhpc_plugin([[maybe_unused]] ::fedhpc::Plugin& plugin)
