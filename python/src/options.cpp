// Keys that a Python method declares.

#include "options.hpp"

#include <cctype>
#include <memory>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "core/number_text.hpp"
#include "engine_calls.hpp"
#include "methods.hpp"

namespace fedhpc::python {

namespace {

constexpr const char* kSection = "algorithm.";

template <typename T>
T bound(nb::handle value) {
  T number{};
  if (nb::try_cast(value, number)) return number;
  throw nb::type_error(
      concat("options.add: the bounds of ",
             std::is_integral_v<T> ? "a whole number are whole numbers" : "a number are numbers",
             ", and not a ", nb::type_name(value.type()).c_str())
          .c_str());
}

/// How a number is bounded, as the keywords say.
struct Limits {
  nb::handle at_least, above, at_most, below;

  /// Throws ValueError where two keywords bound one side.
  void require_one_a_side(const std::string& name) const;
  bool any() const {
    return !(at_least.is_none() && above.is_none() && at_most.is_none() && below.is_none());
  }
  template <typename T>
  Bounds<T> bounds() const {
    Bounds<T> bounds;
    if constexpr (std::is_integral_v<T>) bounds.high = kLargestCount;
    if (!at_least.is_none()) bounds.low = bound<T>(at_least);
    if (!above.is_none()) {
      bounds.low = bound<T>(above);
      bounds.low_open = true;
    }
    if (!at_most.is_none()) bounds.high = bound<T>(at_most);
    if (!below.is_none()) {
      bounds.high = bound<T>(below);
      bounds.high_open = true;
    }
    return bounds;
  }
};

[[noreturn]] void refuse_option(const std::string& name, const std::string& because) {
  throw nb::value_error(concat("options.add('", name, "', ...): ", because).c_str());
}

void Limits::require_one_a_side(const std::string& name) const {
  if (!at_least.is_none() && !above.is_none()) refuse_option(name, "give at_least or above");
  if (!at_most.is_none() && !below.is_none()) refuse_option(name, "give at_most or below");
}

/// "; did you mean 'train.lr'?", or nothing.
std::string likely(const OptionSet& table, const std::string& key) {
  std::vector<std::string> keys;
  for (const OptionSet::Entry& entry : table.entries()) keys.push_back(entry.key);
  return suggestion(likely_key(key, keys));
}

/// The attribute of the method that has the key's value: lambda is no name in Python.
std::string attribute_of(const std::string& name) {
  const bool reserved = nb::cast<bool>(nb::module_::import_("keyword").attr("iskeyword")(name));
  return reserved ? name + "_" : name;
}

/// Throws ValueError where a key's value would take the place of what the method is made of. A plain
/// value in the class is the key's to replace.
void require_free_attribute(const PyOptions& self, const std::string& name) {
  const nb::handle type = self.own->method.type();
  const std::string attribute = attribute_of(name);
  if (!nb::hasattr(type, attribute.c_str())) return;
  const nb::object there = nb::getattr(type, attribute.c_str());
  const bool verb = PyCallable_Check(there.ptr()) != 0;
  const nb::object base = nb::module_::import_("fedhpc.methods").attr("Algorithm");
  if (!verb && !nb::hasattr(base, attribute.c_str()) &&
      !PyObject_TypeCheck(there.ptr(), &PyProperty_Type)) {
    return;
  }
  throw nb::value_error(
      concat("algorithm.", name, " cannot be a key: ", nb::cast<std::string>(type.attr("__name__")),
             " has ", verb ? "a verb" : "an attribute", " of this name; give the key another")
          .c_str());
}

void set_attribute(nb::handle method, const std::string& attribute, const OptionValue& value) {
  std::visit([&](const auto& x) { nb::setattr(method, attribute.c_str(), nb::cast(x)); }, value);
}

bool is_type(nb::handle kind, const PyTypeObject& type) {
  return kind.ptr() == reinterpret_cast<const PyObject*>(&type);
}

/// The kind of a key is that of its default, or the one that is told.
OptionValue value_of(const std::string& name, nb::handle value, nb::handle kind) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (value.is_none()) {
    if (is_type(kind, PyLong_Type)) return std::optional<std::int64_t>();
    if (is_type(kind, PyFloat_Type)) return std::optional<double>();
    refuse_option(name, "the default None (auto) wants kind=int or kind=float");
  }
  if (nb::isinstance<nb::int_>(value)) {
    if (is_type(kind, PyFloat_Type)) return nb::cast<double>(value);
    return nb::cast<std::int64_t>(value);
  }
  if (nb::isinstance<nb::float_>(value)) {
    if (is_type(kind, PyLong_Type)) refuse_option(name, "kind=int wants a whole number");
    return nb::cast<double>(value);
  }
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  std::vector<std::int64_t> numbers;
  std::vector<std::string> words;
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    if (nb::len(value) > 0 && nb::try_cast(value, numbers)) return numbers;
    if (nb::try_cast(value, words)) return words;
  }
  refuse_option(name, "a default is a bool, a number, a text, or a list of whole numbers or words");
}

void require_name(const PyOptions& self, const std::string& name) {
  bool good = !name.empty() && std::islower(static_cast<unsigned char>(name.front())) != 0;
  for (const char letter : name) {
    const auto one = static_cast<unsigned char>(letter);
    good &= std::islower(one) != 0 || std::isdigit(one) != 0 || letter == '_';
  }
  if (!good) refuse_option(name, "the name of a key has lower-case letters, digits and _");
  if (self.table->contains(kSection + name)) refuse_option(name, "there is a key of this name");
}

/// The entry of a value, which refers to it.
OptionSet::Entry& entry_for(OptionSet& table, const std::string& name, OptionValue& value,
                            const Limits& limits, const std::vector<std::string>& choices,
                            const std::string& help) {
  const std::string key = kSection + name;
  const auto numbers_alone = [&] {
    if (limits.any()) refuse_option(name, "bounds are for numbers");
  };
  if (auto* flag = std::get_if<bool>(&value)) return numbers_alone(), table.add(key, *flag, help);
  if (auto* text = std::get_if<std::string>(&value)) {
    numbers_alone();
    if (choices.empty()) return table.add(key, *text, help);
    return table.add_choice(key, *text, choices, help);
  }
  if (auto* words = std::get_if<std::vector<std::string>>(&value)) {
    numbers_alone();
    if (choices.empty()) return table.add_words(key, *words, help);
    return table.add(key, *words, choices, help);
  }
  if (!choices.empty()) refuse_option(name, "choices are for texts");
  if (auto* count = std::get_if<std::int64_t>(&value)) {
    return table.add(key, *count, limits.bounds<std::int64_t>(), help);
  }
  if (auto* number = std::get_if<double>(&value)) {
    return table.add(key, *number, limits.bounds<double>(), help);
  }
  if (auto* count = std::get_if<std::optional<std::int64_t>>(&value)) {
    return table.add_or_auto(key, *count, limits.bounds<std::int64_t>(), help);
  }
  if (auto* number = std::get_if<std::optional<double>>(&value)) {
    return table.add_or_auto(key, *number, limits.bounds<double>(), help);
  }
  return table.add(key, std::get<std::vector<std::int64_t>>(value), limits.bounds<std::int64_t>(),
                   help);
}

/// Throws ValueError where the default is none that the key may have.
void require_default(const OptionSet::Entry& entry, const std::string& name) {
  const std::string text = entry.print();
  if (text.empty()) return;  // of a text or a list: not set
  try {
    entry.parse(text);
  } catch (const std::invalid_argument&) {
    refuse_option(name, concat("the default ", text, " is not allowed; allowed: ", entry.allowed));
  }
}

void add(PyOptions& self, const std::string& name, nb::handle value, const std::string& help,
         nb::handle at_least, nb::handle above, nb::handle at_most, nb::handle below,
         const std::vector<std::string>& choices, nb::handle kind, const Condition* acts) {
  if (self.own == nullptr) throw std::runtime_error("a key is declared in declare() alone");
  OptionSet& table = *self.table;
  require_name(self, name);
  require_free_attribute(self, name);
  if (help.empty()) refuse_option(name, "a key has a help: one sentence of what it means");
  OptionValue& stored = self.own->values.emplace_back(value_of(name, value, kind));
  const Limits limits{at_least, above, at_most, below};
  limits.require_one_a_side(name);
  OptionSet::Entry& entry = entry_for(table, name, stored, limits, choices, help);
  require_default(entry, name);
  if (acts != nullptr) entry.acts(*acts);
  const std::string attribute = attribute_of(name);
  entry.parse = [read = entry.parse, method = self.own->method, attribute,
                 &stored](const std::string& text) {
    read(text);
    in_method([&] { set_attribute(method, attribute, stored); });
  };
  set_attribute(self.own->method, attribute, stored);
}

LinkOptions::Payloads to_payloads(const std::string& name) {
  using Payloads = LinkOptions::Payloads;
  if (name == "changes") return Payloads::Changes;
  if (name == "models") return Payloads::Models;
  if (name == "changes_up") return Payloads::ChangesUp;
  if (name == "models_up") return Payloads::ModelsUp;
  throw nb::value_error(
      concat("payloads is 'changes', 'models', 'changes_up' or 'models_up', not '", name, "'")
          .c_str());
}

void averaging(PyOptions& self, const std::string& weighting, const std::string& codec_help,
               const std::string& payloads) {
  if (self.own == nullptr) throw std::runtime_error("keys are declared in declare() alone");
  const LinkOptions::Payloads travelling = to_payloads(payloads);
  for (const char* name : {"weighting", "codec", "k"}) require_name(self, name);
  for (const char* name : {"weighting", "codec"}) require_free_attribute(self, name);
  AveragingOptions& averaging =
      self.own->averaging.emplace(AveragingOptions{.weighting = to_weighting(weighting)});
  averaging.declare(*self.table, travelling, codec_help);
  self.own->opens_links =
      travelling == LinkOptions::Payloads::Changes || travelling == LinkOptions::Payloads::Models;
  self.own->set_averaging();
}

const OptionSet::Entry& entry_of(const PyOptions& self, const std::string& key) {
  const std::string whole = key.find('.') == std::string::npos ? kSection + key : key;
  if (!self.table->contains(whole)) {
    throw nb::key_error(
        concat("there is no key '", whole, "' here", likely(*self.table, whole)).c_str());
  }
  return self.table->entry(whole);
}

void add_check(PyOptions& self, const nb::callable& check) {
  if (self.own == nullptr) throw std::runtime_error("a check is added in declare() alone");
  const auto kept = kept_object(check);
  self.table->add_check([kept](const OptionSet& options) {
    in_method([&] {
      const TimePtr time = time_of("these options are over: they can be used only in the check");
      const During during(time);
      // A check gets no verb that changes the table.
      kept->operator()(PyOptions{{const_cast<OptionSet&>(options), time}, nullptr});
    });
  });
}

/// A value of a key, as the key prints it.
std::string text_of(nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value) ? "true" : "false";
  if (value.is_none()) return "auto";
  if (nb::isinstance<nb::float_>(value)) return print_number(nb::cast<double>(value));
  if (nb::hasattr(value, "item")) return text_of(nb::object(value.attr("item")()));  // of numpy
  return nb::cast<std::string>(nb::str(value));
}

void bind_conditions(nb::module_& core) {
  nb::class_<Condition>(core, "Condition", "A key acts only where this holds for other keys.")
      .def("__or__", [](const Condition& a, const Condition& b) { return either(a, b); })
      .def("__and__", [](const Condition& a, const Condition& b) { return both(a, b); })
      .def("__repr__", [](const Condition& self) { return concat("<where ", self.words, ">"); });
  core.def(
      "where",
      [](const std::string& key, nb::args values) {
        std::vector<std::string> texts;
        for (nb::handle value : values) texts.push_back(text_of(value));
        if (texts.empty()) throw nb::value_error("where(key, value, ...) has a value");
        return where(key, texts);
      },
      nb::arg("key"), nb::arg("values"),
      "The condition that `key` ('train.optimizer') has one of these values: True or False, a "
      "number, a text, or None for 'auto'. Conditions join by | and &.");
  core.def(
      "unless",
      [](const std::string& key, nb::handle value) { return unless(key, text_of(value)); },
      nb::arg("key"), nb::arg("value").none(), "The condition that `key` has another value.");
}

}  // namespace

void MethodOptions::set_averaging() const {
  if (!averaging) return;
  const char* names[] = {"samples", "batches", "uniform"};
  nb::setattr(method, "weighting", nb::cast(names[static_cast<int>(averaging->weighting)]));
  if (opens_links) return;
  nb::setattr(method, "codec", nb::cast(PyCodec{averaging->links.upload_codec()}));
}

void bind_options(nb::module_& core) {
  bind_conditions(core);
  nb::class_<PyOptions>(
      core, "Options",
      "The keys of a run, in declare() and its checks. options['train.lr'] is the text of a "
      "value.")
      .def("add", &add, nb::arg("name"), nb::arg("default").none(), nb::arg("help"), nb::kw_only(),
           nb::arg("at_least") = nb::none(), nb::arg("above") = nb::none(),
           nb::arg("at_most") = nb::none(), nb::arg("below") = nb::none(),
           nb::arg("choices") = std::vector<std::string>(), nb::arg("kind") = nb::none(),
           nb::arg("acts") = nb::none(),
           "Declares the key algorithm.NAME, whose value is the method's attribute NAME (NAME_ "
           "where Python reserves it). The default says the kind: bool, int, float, str, list of "
           "int or of str; with kind=float a whole number is a float, and None with kind=int or "
           "float is 'auto'. help: one sentence. Bounds are for numbers, choices for texts. acts: "
           "where() it acts.")
      .def("averaging", &averaging, nb::arg("weighting") = "samples", nb::arg("codec_help") = "",
           nb::arg("payloads") = "changes_up",
           "Declares algorithm.weighting, algorithm.codec and algorithm.k; from initialise() on "
           "the method has them as self.weighting (for block.weights) and self.codec (for "
           "uploads). payloads: 'changes_up' of models, or whole 'models_up'. With 'changes' or "
           "'models', which travel both ways, also algorithm.downlink_codec and "
           "algorithm.error_feedback, and setup.open_links() gives the codec.")
      .def(
          "acts",
          [](PyOptions& self, const std::string& key, const Condition& condition) {
            if (self.own == nullptr) throw std::runtime_error("acts is for declare() alone");
            self.table->acts(entry_of(self, key).key, condition);
          },
          nb::arg("key"), nb::arg("condition"), "Adds a condition to a key of train.* or its own.")
      .def("add_check", &add_check, nb::arg("check"),
           "check(options) is called once every key has its value; it refuses values that do not "
           "go together.")
      .def(
          "__getitem__",
          [](const PyOptions& self, const std::string& key) { return entry_of(self, key).print(); },
          nb::arg("key"), "The text of a key's value.")
      .def("__contains__",
           [](const PyOptions& self, const std::string& key) { return self.table->contains(key); })
      .def(
          "refuse",
          [](const PyOptions& self, const std::string& key, const std::string& because) {
            self.table->refuse(entry_of(self, key).key, because);
          },
          nb::arg("key"), nb::arg("because"),
          "Raises ConfigError: 'PLACE: key KEY cannot be VALUE with BECAUSE'.")
      .def(
          "refuse_unless_default",
          [](const PyOptions& self, const std::string& key, const std::string& because) {
            self.table->refuse_unless_default(entry_of(self, key).key, because);
          },
          nb::arg("key"), nb::arg("because"), "The same unless the key has its default.");
}

}  // namespace fedhpc::python
