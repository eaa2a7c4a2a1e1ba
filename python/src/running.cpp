#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/build_info.hpp"
#include "fedhpc/engine/plugins.hpp"

#include "bindings.hpp"
#include "core/thrown.hpp"
#include "engine_calls.hpp"
#include "methods.hpp"

namespace fedhpc::python {

namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

/// MPI of this process, from the first run to the end of the interpreter.
std::optional<Session> session;
/// Told before this rank ends all of them; none by default.
nb::object on_abort;
/// What Python code of the run in hand has raised.
std::optional<nb::python_error> raised_in_run;

const Session& session_for(const StartOptions& start) {
  if (!session) session.emplace(nullptr, nullptr, start.mpi, start.timeout);
  session->check();
  return *session;
}

[[noreturn]] void raise(const char* kind, const std::string& sentence) {
  set_error(kind, sentence);
  throw nb::python_error();
}

/// A run has failed on this rank. One process alone raises; of several, the others would wait for
/// ever, so all of them end.
[[noreturn]] void fail(const StartOptions& start, const std::string& sentence) {
  if (session_for(start).size() > 1) {
    try {
      if (raised_in_run) {
        nb::module_::import_("traceback").attr("print_exception")(raised_in_run->value());
      }
      nb::module_::import_("sys").attr("stdout").attr("flush")();
      if (on_abort) on_abort(sentence, raised_in_run ? raised_in_run->value() : nb::none());
    } catch (const nb::python_error&) {
      // Nobody reads or listens any more.
    }
    session->abort(sentence);
  }
  if (raised_in_run) {
    nb::python_error original = *std::move(raised_in_run);
    raised_in_run.reset();
    original.restore();
    throw nb::python_error();
  }
  raise("Error", sentence);
}

/// Whether a run is in hand.
std::atomic<bool> run_in_hand = false;

/// One run at a time: signals, threads and the log are the process's.
class InHand {
 public:
  InHand() {
    if (run_in_hand.exchange(true)) {
      throw ConfigError(
          "a run of this process is under way; wait for its end, or start another process");
    }
  }
  ~InHand() { run_in_hand = false; }
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;
};

/// Lets the caller's torch draw after a run as if there had been none: models of scripts draw by its
/// generator.
class KeptGenerator {
 public:
  KeptGenerator() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::scoped_lock lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeptGenerator() {
    const std::scoped_lock lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// Calls the engine without the interpreter's lock; its errors become Python's.
template <typename Work>
auto in_engine(const StartOptions& start, const Work& work) {
  try {
    const InHand in_hand;
    raised_in_run.reset();
    session_for(start);
    const KeptGenerator kept;
    const nb::gil_scoped_release unlocked;
    return work();
  } catch (const ConfigError& error) {
    raise("ConfigError", error.what());
  } catch (const DataError& error) {
    raise("DataError", error.what());
  } catch (...) {
    fail(start, what_was_thrown());
  }
}

void append(std::vector<Assignment>& to, const Texts& values, const Origin& origin) {
  for (const auto& [key, value] : values) to.push_back({key, value, origin});
}

/// A configuration of Python: a file or values of a dictionary, and keywords, which win.
struct Source {
  std::optional<std::string> path;
  Texts values;
  Texts keywords;
  Texts unless_told = {};

  Given given() const {
    Given given{path.value_or("run.ini"), path ? read_ini(*path) : std::vector<Assignment>{}};
    append(given.assignments, unless_told, {Level::Stored, "default"});
    append(given.assignments, values, {Level::File, "configuration"});
    append(given.assignments, keywords, {Level::CommandLine, "keyword"});
    return given;
  }
  StartOptions start() const {
    std::error_code failed;
    if (path && !std::filesystem::is_regular_file(*path, failed)) {  // a pipe can be read but once
      return start_options(std::vector<Assignment>{});
    }
    try {
      return start_options(given().assignments);
    } catch (const Error&) {
      return start_options(std::vector<Assignment>{});  // what is wrong is said where it is read
    }
  }
};

/// Hands what a run tells to functions of Python; None is no function.
Onlooker onlooker(const nb::object& begin, const nb::object& round, const nb::object& stop) {
  Onlooker all;
  if (!begin.is_none()) {
    all.begin = [&begin](const Experiment& experiment, std::int64_t done) {
      call_python([&] { begin(experiment.config().to_ini(), done); });
    };
  }
  if (!round.is_none()) {
    all.round = [&round](const Experiment& experiment, const RoundReport& report) {
      call_python([&] {
        nb::dict record;
        record["round"] = report.round;
        const std::vector<double> values = report.metrics.values(experiment.parts().loss);
        const std::vector<Metric> series = experiment.series();
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (!std::isnan(values[i])) record[series[i].name.c_str()] = values[i];
        }
        round(record);
      });
    };
  }
  if (!stop.is_none()) {
    all.stop = [&stop] { return call_python([&] { return nb::cast<bool>(stop()); }); };
  }
  return all;
}

nb::tuple as_tuple(const RunEnd& end) { return nb::make_tuple(end.status, end.output, end.signal); }

}  // namespace

std::string keep_exception(const nb::python_error& raised) {
  if (!raised_in_run) raised_in_run.emplace(raised);
  const auto text = [](nb::handle of) { return std::string(nb::str(of).c_str()); };
  const nb::object frames =
      nb::module_::import_("traceback").attr("extract_tb")(raised.traceback());
  const std::string what = concat(text(raised.type().attr("__name__")), ": ", text(raised.value()));
  if (nb::len(frames) == 0) return what;
  const nb::object last = frames[nb::int_(-1)];
  return concat(what, " (", text(last.attr("filename")), ", line ", text(last.attr("lineno")), ")");
}

void bind_running(nb::module_& core) {
  set_plugin_language(".py", [](const std::string& path) {
    const nb::gil_scoped_acquire lock;
    try {
      nb::module_::import_("fedhpc.running").attr("load_plugin")(path);
    } catch (const nb::python_error& raised) {
      throw ConfigError(nb::str(raised.value()).c_str());
    }
  });
  core.def("version", [] { return build_info().version; });
  core.def("torch_version", [] { return build_info().torch; });
  core.def("end", [] {
    raised_in_run.reset();
    on_abort.reset();
    session.reset();
  });
  core.def("abort", [](const std::string& sentence) {
    if (session) session->abort(sentence);
  });
  core.def("on_abort", [](const nb::object& told) { on_abort = told; });
  core.def("launcher", [] { return launcher().name; });
  core.def("launched_rank", [] { return launcher().rank; });
  // 0: a launcher that does not count them.
  core.def("launched_ranks", [] { return launcher().name.empty() ? 1 : launcher().tasks; });
  core.def("rank", [] { return session_for(start_options(std::vector<Assignment>{})).rank(); });
  core.def("ranks", [] { return session_for(start_options(std::vector<Assignment>{})).size(); });
  core.def(
      "run",
      [](const std::optional<std::string>& path, const Texts& values, const Texts& keywords,
         bool force, bool go_on, const Texts& unless_told, const std::string& command_line,
         const nb::object& begin, const nb::object& round, const nb::object& stop) {
        const Source source{path, values, keywords, unless_told};
        const StartOptions start = source.start();
        const Host host{command_line, onlooker(begin, round, stop),
                        StopSignals::Afterwards::AsBefore};
        const Earlier earlier = force   ? Earlier::Replace
                                : go_on ? Earlier::Keep
                                        : Earlier::SetAside;
        return as_tuple(in_engine(
            start, [&] { return run([&] { return source.given(); }, start, earlier, host); }));
      },
      nb::arg("path").none(), nb::arg("values"), nb::arg("keywords"), nb::arg("force"),
      nb::arg("go_on"), nb::arg("unless_told"), nb::arg("command_line"), nb::arg("begin").none(),
      nb::arg("round").none(), nb::arg("stop").none());
  core.def(
      "resume",
      [](const std::string& results, const std::optional<std::string>& path, const Texts& keywords,
         const std::string& command_line, const nb::object& begin, const nb::object& round,
         const nb::object& stop) {
        const Source source{path, {}, keywords};
        const StartOptions start = source.start();
        const Host host{command_line, onlooker(begin, round, stop),
                        StopSignals::Afterwards::AsBefore};
        const auto read = [&] {
          Given given{path.value_or(""), path ? read_ini(*path) : std::vector<Assignment>{}};
          append(given.assignments, keywords, {Level::CommandLine, "keyword"});
          return given;
        };
        return as_tuple(in_engine(start, [&] { return resume(results, read, start, host); }));
      },
      nb::arg("results"), nb::arg("path").none(), nb::arg("keywords"), nb::arg("command_line"),
      nb::arg("begin").none(), nb::arg("round").none(), nb::arg("stop").none());
  core.def("plan", [](const std::optional<std::string>& path, const Texts& values,
                      const Texts& keywords) {
    const Source source{path, values, keywords};
    const StartOptions start = source.start();
    return in_engine(start, [&] { return plan([&] { return source.given(); }, start).needs; });
  });
  core.def("listing", [] {
    std::vector<std::pair<std::string, Texts>> all;
    for (const Kind& kind : kinds()) all.emplace_back(kind.name, kind.listing);
    return all;
  });
  core.def("help", [](const std::string& name) {
    try {
      const nb::gil_scoped_release unlocked;
      return help_text(name);
    } catch (const ConfigError& error) {
      raise("ConfigError", error.what());
    }
  });
  core.def("program", [](std::vector<std::string> arguments) {
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    const nb::gil_scoped_release unlocked;
    const int exit_code = program(static_cast<int>(arguments.size()), words.data());
    std::fflush(nullptr);  // before command.py ends the process without taking it apart
    return exit_code;
  });
}

}  // namespace fedhpc::python
