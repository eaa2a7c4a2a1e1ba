// Methods of Python in the engine.

#include "methods.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/training/options.hpp"

#include "bindings.hpp"
#include "evaluation.hpp"
#include "options.hpp"
#include "setup.hpp"

namespace fedhpc::python {

namespace {

/// The exceptions of the package.
nb::object errors() { return nb::module_::import_("fedhpc.errors"); }

/// What a method's attributes say it is. Throws ValueError, with the class and the method, for one
/// that says nothing.
class Attributes {
 public:
  Attributes(nb::handle method, const std::string& name) : method_(method), name_(name) {}

  Traits traits() const {
    Traits traits;
    traits.tiers = one_of<Tiers>("tiers", {{"client-cloud", Tiers::ClientCloud},
                                           {"client-edge-cloud", Tiers::ClientEdgeCloud}});
    traits.models = one_of<Models>("models", {{"global", Models::Global},
                                              {"personal", Models::Personal},
                                              {"both", Models::Both},
                                              {"shared", Models::Shared}});
    traits.factorisations.names = factorisations();
    traits.factor_draw = factor_draw();
    traits.cohorts_in_round = count("cohorts_in_round", 1);
    traits.averaged_uploads = count("averaged_uploads", 0);
    traits.can_leave_rounds = flag("can_leave_rounds", of("can_leave_rounds"));
    return traits;
  }

 private:
  std::int64_t count(const char* attribute, std::int64_t least) const {
    const nb::object given = of(attribute);
    std::int64_t number = 0;
    if (PyBool_Check(given.ptr()) != 0 || !nb::try_cast(given, number) || number < least) {
      refuse(attribute, concat("a whole number of at least ", least), given);
    }
    return number;
  }

  nb::object of(const char* attribute) const {
    try {
      return nb::getattr(method_, attribute);
    } catch (const nb::python_error& raised) {
      const std::string what =
          concat(text(raised.type().attr("__name__")), ": ", text(nb::str(raised.value())));
      throw nb::value_error(
          concat(attribute_name(attribute), " has no value: ", what,
                 "; where it depends on keys, give them a value in the class as well")
              .c_str());
    }
  }

  static std::string text(nb::handle words) { return nb::cast<std::string>(words); }

  std::string attribute_name(const std::string& attribute) const {
    return concat("method '", name_, "': ", text(method_.type().attr("__name__")), ".", attribute);
  }

  [[noreturn]] void refuse(const std::string& attribute, const std::string& wanted, nb::handle got,
                           const std::string& hint = "") const {
    throw nb::value_error(
        concat(attribute_name(attribute), " is ", wanted, ", and not ", text(nb::repr(got)), hint)
            .c_str());
  }

  /// The value of a name among few.
  template <typename E>
  E one_of(const char* attribute, const Names<E>& names) const {
    const nb::object given = of(attribute);
    std::vector<std::string> words;
    for (const auto& [word, value] : names) {
      if (nb::isinstance<nb::str>(given) && text(given) == word) return value;
      words.emplace_back(word);
    }
    refuse(attribute, concat("one of ", join(words)), given);
  }

  bool flag(const char* attribute, nb::handle given) const {
    if (PyBool_Check(given.ptr()) == 0) refuse(attribute, "True or False", given);
    return nb::cast<bool>(given);
  }

  std::vector<std::string> factorisations() const {
    const nb::object given = of("factorisations");
    const bool several = nb::isinstance<nb::tuple>(given) || nb::isinstance<nb::list>(given);
    std::vector<std::string> names;
    if (!several || !nb::try_cast(given, names)) {
      refuse("factorisations", "a tuple of names", given);
    }
    const std::vector<std::string> known = factorisation_registry().names();
    for (const std::string& name : names) {
      if (std::ranges::count(known, name) > 0) continue;
      refuse("factorisations", concat("names among ", join(known)), given,
             suggestion(nearest(name, known)));
    }
    return names;
  }

  FactorDraw factor_draw() const {
    const nb::object given = of("factor_draw");
    if (!nb::isinstance<nb::dict>(given)) refuse("factor_draw", "a dictionary", given);
    FactorDraw drawn;
    for (const auto& [key, value] : nb::cast<nb::dict>(given)) {
      const std::string name = text(nb::str(key));
      if (name == "range") {
        double range = 0;
        if (PyBool_Check(value.ptr()) != 0 || !nb::try_cast(value, range) || !(range > 0) ||
            !std::isfinite(range)) {
          refuse("factor_draw['range']", "a number above 0", value);
        }
        drawn.range = range;
      } else if (name == "like_layers") {
        drawn.like_layers = flag("factor_draw['like_layers']", value);
      } else if (name == "zero") {
        drawn.zero = flag("factor_draw['zero']", value);
      } else {
        refuse("factor_draw", "a dictionary with range, like_layers and zero", given);
      }
    }
    return drawn;
  }

  nb::handle method_;
  const std::string& name_;
};

/// A method whose algorithm is an object of Python.
class PythonMethod final : public Algorithm {
 public:
  PythonMethod(const nb::object& method, std::string name)
      : name_(std::move(name)), method_(kept_object(method)), options_{*method_} {}
  ~PythonMethod() override { session_->inside->end(); }

  Traits traits() const override {
    return in_method([&]() -> Traits {
      try {
        return Attributes(*method_, name_).traits();
      } catch (const nb::builtin_exception&) {
        if (declared_) throw;
      }
      return {};  // a run of another method asks, and goes on; one of its own is told
    });
  }

  std::string code_digest() const override {
    return in_method([&] {
      const nb::object digest = nb::module_::import_("fedhpc._code").attr("digest");
      return nb::cast<std::string>(digest(method_->type()));
    });
  }

  void declare(OptionSet& options) override {
    in_method([&] {
      declared_ = true;
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
    in_method([&] {
      session_->inside->go_on();
      const During inside(session_->inside);
      const RunInHand in_hand(session_->run);
      const TimePtr time =
          time_of("this setup is over: it can be used only while initialise() runs");
      const During during(time);
      options_.set_averaging();
      of("initialise")(PySetup{{setup, time}, session_, &options_});
    });
  }

  void prepare(Round& everybody) override { run("prepare", everybody); }
  void round(Round& round) override { run("round", round); }

  void evaluate(Evaluation& evaluation) override {
    inside([&] {
      const TimePtr time =
          time_of("this evaluation is over: it can be used only while evaluate() runs");
      const During during(time);
      const auto handed = std::make_shared<HandedOver>();
      of("evaluate")(PyEvaluation{{evaluation, time}, handed});
      require_models(*handed);
    });
  }

  void visit_state(StateVisitor& state) override {
    inside([&] {
      const TimePtr time =
          time_of("this state is over: it can be visited only while visit_state() runs");
      const During during(time);
      of("visit_state")(PyState{{state, time}, std::make_shared<std::set<std::string>>()});
    });
  }

  std::vector<NamedTensor> drawn_in(std::int64_t round) const override {
    return in_method([&] {
      std::vector<NamedTensor> drawn;
      const nb::object given = of("drawn_in")(round);
      if (!nb::isinstance<nb::dict>(given)) {
        refuse(class_name() + ".drawn_in()", "to return a dictionary {name: array}",
               nb::cast<std::string>(nb::repr(given)));
      }
      for (const auto& [name, values] : nb::cast<nb::dict>(given)) {
        drawn.push_back({nb::cast<std::string>(name), to_tensor("drawn_in", values)});
      }
      return drawn;
    });
  }

 private:
  nb::object of(const char* attribute) const { return nb::getattr(*method_, attribute); }
  std::string class_name() const { return nb::cast<std::string>(method_->type().attr("__name__")); }

  /// Throws ValueError unless evaluate() has handed over all that `models` says there is.
  void require_models(const HandedOver& handed) const {
    const Models models = Attributes(*method_, name_).traits().models;
    std::vector<std::string> lacks;
    if (has_global(models) && !handed.global) lacks.emplace_back("evaluation.global_model");
    if (models == Models::Shared && !handed.shared) lacks.emplace_back("evaluation.shared");
    if (has_personal(models) && !handed.personal) lacks.emplace_back("evaluation.each_block");
    if (lacks.empty()) return;
    const bool none = !handed.global && !handed.shared && !handed.personal;
    throw nb::value_error(concat(class_name(), ".evaluate() has handed over ",
                                 none ? "no model" : "not all its models", ": with models = '",
                                 nb::cast<std::string>(of("models")), "' it has to call ",
                                 join(lacks, " and "))
                              .c_str());
  }

  /// Calls Python code that may use what setup gave. Whatever it raises is the failure of this rank:
  /// a refusal would have to be the same on all of them.
  template <typename Work>
  void inside(const Work& work) {
    call_python([&] {
      try {
        session_->inside->go_on();
        const During during(session_->inside);
        const RunInHand in_hand(session_->run);
        work();
      } catch (const nb::builtin_exception& thrown) {
        throw_as_python(thrown);
      }
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

  std::string name_;
  bool declared_ = false;
  std::shared_ptr<nb::object> method_;
  MethodOptions options_;
  MethodSessionPtr session_ = std::make_shared<MethodSession>();
};

/// Gives the engine's errors in verbs the package's exceptions.
void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ConfigError& error) {
    set_error("ConfigError", error.what());
  } catch (const DataError& error) {
    set_error("DataError", error.what());
  } catch (const Error& error) {
    set_error("Error", error.what());
  } catch (const c10::Error& error) {
    set_error("Error", error.what_without_backtrace());
  }
}

}  // namespace

void set_error(const char* kind, const std::string& sentence) {
  const auto text = nb::steal<nb::object>(
      PyUnicode_DecodeUTF8(sentence.data(), static_cast<Py_ssize_t>(sentence.size()), "replace"));
  if (text.is_valid()) PyErr_SetObject(errors().attr(kind).ptr(), text.ptr());
}

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

void require_word(const std::string& verb, const std::string& name) {
  const auto of_a_word = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
  };
  const unsigned char first = name.empty() ? '.' : name.front();
  if ((std::isalpha(first) != 0 || first == '_') && std::ranges::all_of(name, of_a_word)) {
    return;
  }
  refuse(verb, "a name of letters, digits, _, - and . that begins with a letter", "'" + name + "'");
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
  core.def("check_attributes",
           [](nb::handle method, const std::string& name) { Attributes(method, name).traits(); });
  core.def("add_algorithm", [](const std::string& name, const std::string& sentence) {
    algorithm_registry().add(name, sentence, [name]() -> std::unique_ptr<Algorithm> {
      return in_method([&]() -> std::unique_ptr<Algorithm> {
        return std::make_unique<PythonMethod>(
            nb::module_::import_("fedhpc.methods").attr("_made")(name), name);
      });
    });
  });
}

}  // namespace fedhpc::python
