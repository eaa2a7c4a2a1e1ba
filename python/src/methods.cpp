// Methods of Python in the engine.

#include "methods.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include "fedhpc/training/options.hpp"

#include "bindings.hpp"
#include "evaluation.hpp"
#include "options.hpp"
#include "setup.hpp"

namespace fedhpc::python {

namespace {

/// The exceptions of the package.
nb::object errors() { return nb::module_::import_("fedhpc.errors"); }

/// The value of a name among few.
template <typename E>
E one_of(const char* attribute, const nb::object& name, const Names<E>& names) {
  const auto text = nb::cast<std::string>(nb::str(name));
  std::vector<std::string> words;
  for (const auto& [word, value] : names) {
    if (word == text) return value;
    words.emplace_back(word);
  }
  throw nb::value_error(
      concat("a method's ", attribute, " is one of ", join(words), ", and not '", text, "'")
          .c_str());
}

FactorDraw factor_draw_of(const nb::dict& draw) {
  FactorDraw drawn;
  for (const auto& [key, value] : draw) {
    const auto name = nb::cast<std::string>(key);
    if (name == "range") {
      drawn.range = nb::cast<double>(value);
    } else if (name == "like_layers") {
      drawn.like_layers = nb::cast<bool>(value);
    } else if (name == "zero") {
      drawn.zero = nb::cast<bool>(value);
    } else {
      throw nb::value_error(
          concat("factor_draw has range, like_layers and zero, and no '", name, "'").c_str());
    }
  }
  return drawn;
}

/// A method whose algorithm is an object of Python.
class PythonMethod final : public Algorithm {
 public:
  explicit PythonMethod(const nb::object& method)
      : method_(kept_object(method)), options_{*method_} {}
  ~PythonMethod() override { session_->inside->end(); }

  Traits traits() const override {
    return in_method([&] {
      Traits traits;
      traits.tiers = one_of<Tiers>(
          "tiers", of("tiers"),
          {{"client-cloud", Tiers::ClientCloud}, {"client-edge-cloud", Tiers::ClientEdgeCloud}});
      traits.models = one_of<Models>("models", of("models"),
                                     {{"global", Models::Global},
                                      {"personal", Models::Personal},
                                      {"both", Models::Both},
                                      {"shared", Models::Shared}});
      traits.factorisations.names = nb::cast<std::vector<std::string>>(of("factorisations"));
      traits.factor_draw = factor_draw_of(nb::cast<nb::dict>(of("factor_draw")));
      traits.cohorts_in_round = nb::cast<std::int64_t>(of("cohorts_in_round"));
      traits.can_leave_rounds = nb::cast<bool>(of("can_leave_rounds"));
      return traits;
    });
  }

  void declare(OptionSet& options) override {
    in_method([&] {
      const TimePtr time =
          time_of("these options are over: they can be used only in declare() and in checks");
      const During during(time);
      of("declare")(PyOptions{{options, time}, &options_});
    });
  }

  void initialise(const Setup& setup) override {
    session_->inside->end();  // of an earlier run
    session_ = std::make_shared<MethodSession>();
    session_->store = &setup.store();
    const Rows model = setup.initial_model();
    session_->run = {.model = model.layout,
                     .numbers = model.values.options(),
                     .own_buffers = setup.training().buffers == BufferPlace::Local};
    if (!traits().factorisations.names.empty()) {
      session_->run.factors = setup.factor_map().factors();
    }
    inside([&] {
      const TimePtr time =
          time_of("this setup is over: it can be used only while initialise() runs");
      const During during(time);
      options_.set_averaging();
      of("initialise")(PySetup{{setup, time}, session_});
    });
  }

  void prepare(Round& everybody) override { run("prepare", everybody); }
  void round(Round& round) override { run("round", round); }

  void evaluate(Evaluation& evaluation) override {
    inside([&] {
      const TimePtr time =
          time_of("this evaluation is over: it can be used only while evaluate() runs");
      const During during(time);
      of("evaluate")(PyEvaluation{{evaluation, time}});
    });
  }

  void visit_state(StateVisitor& state) override {
    inside([&] {
      const TimePtr time =
          time_of("this state is over: it can be visited only while visit_state() runs");
      const During during(time);
      of("visit_state")(PyState{{state, time}});
    });
  }

  std::vector<NamedTensor> drawn_in(std::int64_t round) const override {
    return in_method([&] {
      std::vector<NamedTensor> drawn;
      for (const auto& [name, values] : nb::cast<nb::dict>(of("drawn_in")(round))) {
        drawn.push_back({nb::cast<std::string>(name), to_tensor("drawn_in", values)});
      }
      return drawn;
    });
  }

 private:
  nb::object of(const char* attribute) const { return nb::getattr(*method_, attribute); }

  /// Calls Python code that may use what setup gave.
  template <typename Work>
  void inside(const Work& work) {
    in_method([&] {
      session_->inside->go_on();
      const During during(session_->inside);
      const RunInHand in_hand(session_->run);
      work();
    });
  }

  void run(const char* verb, Round& round) {
    inside([&] {
      const auto session = std::make_shared<RoundSession>(round, session_);
      struct End {
        RoundSession& session;
        ~End() { session.end(); }
      } const end{*session};
      of(verb)(PyRound{session});
      session->require_not_left();
    });
  }

  std::shared_ptr<nb::object> method_;
  MethodOptions options_;
  MethodSessionPtr session_ = std::make_shared<MethodSession>();
};

void raise_as(const char* kind, const char* sentence) {
  PyErr_SetString(errors().attr(kind).ptr(), sentence);
}

/// Gives the engine's errors in verbs the package's exceptions.
void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ConfigError& error) {
    raise_as("ConfigError", error.what());
  } catch (const DataError& error) {
    raise_as("DataError", error.what());
  } catch (const Error& error) {
    raise_as("Error", error.what());
  } catch (const c10::Error& error) {
    raise_as("Error", error.what_without_backtrace());
  }
}

}  // namespace

void throw_as_own(const nb::python_error& raised) {
  const auto sentence = [&] { return nb::cast<std::string>(nb::str(raised.value())); };
  if (raised.matches(errors().attr("ConfigError"))) throw ConfigError(sentence());
  if (raised.matches(errors().attr("DataError"))) throw DataError(sentence());
}

void throw_as_python(const nb::builtin_exception& thrown) {
  const bool of_type = thrown.type() == nb::exception_type::type_error;
  PyErr_SetString(of_type ? PyExc_TypeError : PyExc_ValueError, thrown.what());
  throw nb::python_error();
}

std::shared_ptr<nb::object> kept_object(const nb::object& object) {
  return {new nb::object(object), [](nb::object* kept) {
            if (!nb::is_alive()) {
              kept->release();  // nobody is left to whom it could be given back
              delete kept;
              return;
            }
            const nb::gil_scoped_acquire lock;
            delete kept;
          }};
}

void bind_methods(nb::module_& core) {
  nb::register_exception_translator(&translate);
  bind_options(core);
  bind_setup(core);
  bind_evaluation(core);
  core.def("add_algorithm", [](const std::string& name, const std::string& sentence) {
    algorithm_registry().add(name, sentence, [name]() -> std::unique_ptr<Algorithm> {
      return in_method([&]() -> std::unique_ptr<Algorithm> {
        return std::make_unique<PythonMethod>(
            nb::module_::import_("fedhpc.methods").attr("_made")(name));
      });
    });
  });
}

}  // namespace fedhpc::python
