#include "fedhpc/models/description.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "models/layer_makers.hpp"

namespace fedhpc {

std::int64_t values_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_bounded(const Shape& shape) {
  std::int64_t values = 1;
  for (const std::int64_t length : shape) {
    if (length < 1 || values > LineReader::kMost / length) return false;
    values *= length;
  }
  return true;
}

Registry<MadeLayer(const LineReader&)>& layer_registry() {
  static Registry<MadeLayer(const LineReader&)> registry({
#define FEDHPC_LAYER(name, sentence) {#name, sentence, make_##name##_layer},
#include "models/layers.def"
#undef FEDHPC_LAYER
  });
  return registry;
}

std::size_t ModelDescription::add(LayerLine line) {
  lines.push_back(std::move(line));
  return lines.size() - 1;
}

namespace {

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
std::vector<T> numbers_of(const std::string& text, const std::string& word) {
  std::vector<T> numbers;
  for (const std::string& one : split(text, ',')) {
    T number{};
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (error != std::errc() || end != one.data() + one.size()) {
      throw DataError(concat("'", word, "' holds '", one, "', which is no number"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// The shortest text that is this number.
std::string text_of(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number);
  return {text, end.ptr};
}

template <typename Items, typename Text>
std::string joined(const Items& items, Text&& text) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ",") + text(item);
  return all;
}

}  // namespace

std::string text_of(const LayerLine& line) {
  std::string text = line.op;
  for (const auto& [key, numbers] : line.numbers) {
    text += concat(' ', key, '=', joined(numbers, [](double x) { return text_of(x); }));
  }
  if (!line.constant.empty()) text += " constant=" + line.constant;
  if (!line.name.empty()) text += " name=" + line.name;
  if (!line.inputs.empty()) {
    text += " inputs=" + joined(line.inputs, [](std::size_t x) { return std::to_string(x); });
  }
  if (!line.parameters.empty()) {
    text += " parameters=" + joined(line.parameters, [](const std::string& x) { return x; });
  }
  return text;
}

LayerLine line_of(std::string_view text) {
  const std::vector<std::string> words = split(text, ' ');
  LayerLine line{.op = words.front()};
  std::vector<std::string> keys;
  for (std::size_t w = 1; w < words.size(); ++w) {
    const std::size_t equals = words[w].find('=');
    if (equals == std::string::npos || equals == 0) {
      throw DataError(concat("'", words[w], "' is not of the form key=value"));
    }
    const std::string key = words[w].substr(0, equals);
    const std::string value = words[w].substr(equals + 1);
    if (std::count(keys.begin(), keys.end(), key) > 0) {
      throw DataError(concat("'", key, "' stands there twice"));
    }
    keys.push_back(key);
    if (key == "name") {
      line.name = value;
    } else if (key == "constant") {
      line.constant = value;
    } else if (key == "parameters") {
      line.parameters = split(value, ',');
    } else if (key == "inputs") {
      line.inputs = numbers_of<std::size_t>(value, words[w]);
    } else {
      line.numbers[key] = numbers_of<double>(value, words[w]);
    }
  }
  return line;
}

std::string LineReader::place() const {
  const std::string module = line_.name.empty() ? "" : concat(" '", line_.name, "'");
  return concat(place_.source, ", layer ", place_.line, " (", line_.op, module, ")");
}

void LineReader::fail(const std::string& what) const {
  throw DataError(concat(place(), ": ", what));
}

const std::vector<Shape>& LineReader::inputs(std::size_t least, std::size_t most) const {
  check(least <= inputs_.size() && inputs_.size() <= most,
        concat("it has ", inputs_.size(), " inputs, it needs ", least,
               most > least ? concat(" to ", most) : ""));
  return inputs_;
}

const Shape& LineReader::input(std::size_t least, std::size_t most) const {
  const Shape& shape = input();
  check(least <= shape.size() && shape.size() <= most,
        concat("its input has the shape ", at::IntArrayRef(shape), ", it needs ", least,
               most > least ? concat(" to ", most) : "", " dimensions"));
  return shape;
}

const std::vector<double>* LineReader::find(const std::string& key) const {
  asked_.push_back(key);
  const auto found = line_.numbers.find(key);
  return found == line_.numbers.end() ? nullptr : &found->second;
}

std::vector<std::int64_t> LineReader::whole(const std::string& key,
                                            const std::vector<double>& numbers, std::int64_t least,
                                            std::int64_t most) const {
  std::vector<std::int64_t> integers;
  for (const double number : numbers) {
    check(
        number >= static_cast<double>(least) && number <= static_cast<double>(most) &&
            number == std::floor(number),
        concat("'", key, "' is ", number, "; allowed: a whole number from ", least, " to ", most));
    integers.push_back(static_cast<std::int64_t>(number));
  }
  return integers;
}

std::vector<std::int64_t> LineReader::integers(const std::string& key, std::size_t count,
                                               std::int64_t least, std::int64_t most) const {
  const std::vector<double>* numbers = find(key);
  check(numbers != nullptr, concat("the key '", key, "' is missing"));
  check(numbers->size() == count,
        concat("'", key, "' has ", numbers->size(), " numbers, it needs ", count));
  return whole(key, *numbers, least, most);
}

std::vector<std::int64_t> LineReader::integers_or(const std::string& key, std::size_t count,
                                                  std::int64_t otherwise, std::int64_t least,
                                                  std::int64_t most) const {
  if (find(key) == nullptr) return std::vector<std::int64_t>(count, otherwise);
  return integers(key, count, least, most);
}

std::int64_t LineReader::integer(const std::string& key, std::int64_t least,
                                 std::int64_t most) const {
  return integers(key, 1, least, most).front();
}

std::int64_t LineReader::integer_or(const std::string& key, std::int64_t otherwise,
                                    std::int64_t least, std::int64_t most) const {
  return integers_or(key, 1, otherwise, least, most).front();
}

double LineReader::number_or(const std::string& key, double otherwise) const {
  const std::vector<double>* numbers = find(key);
  if (numbers == nullptr) return otherwise;
  check(numbers->size() == 1 && std::isfinite(numbers->front()),
        concat("'", key, "' needs one finite number"));
  return numbers->front();
}

Shape LineReader::shape(const std::string& key) const {
  const std::vector<double>* numbers = find(key);
  check(numbers != nullptr, concat("the key '", key, "' is missing"));
  Shape shape = whole(key, *numbers, 1, kMost);
  check(is_bounded(shape), concat("'", key, "' makes more than 2^31 values"));
  return shape;
}

std::vector<std::size_t> LineReader::dimensions(const std::string& key, const Shape& of) const {
  const std::vector<double>* numbers = find(key);
  check(numbers != nullptr, concat("the key '", key, "' is missing"));
  check(!of.empty(), "its input has no dimensions");
  std::vector<std::size_t> dimensions;
  for (const std::int64_t d : whole(key, *numbers, 0, static_cast<std::int64_t>(of.size()) - 1)) {
    const auto dimension = static_cast<std::size_t>(d);
    check(std::count(dimensions.begin(), dimensions.end(), dimension) == 0,
          concat("'", key, "' names dimension ", d, " twice"));
    dimensions.push_back(dimension);
  }
  return dimensions;
}

std::size_t LineReader::dimension(const std::string& key, const Shape& of) const {
  const std::vector<std::size_t> found = dimensions(key, of);
  check(found.size() == 1, concat("'", key, "' needs one number"));
  return found.front();
}

ParameterNames LineReader::parameters(std::size_t least, std::size_t most) const {
  takes_parameters_ = true;
  check(least <= parameter_count() && parameter_count() <= most,
        concat("it names ", parameter_count(), " parameters, it needs ", least,
               most > least ? concat(" to ", most) : ""));
  return ParameterNames(line_.parameters);
}

const Tensor& LineReader::constant() const {
  takes_constant_ = true;
  check(place_.constant != nullptr, "it names no constant of the description");
  return *place_.constant;
}

void LineReader::check_keys() const {
  for (const auto& [key, numbers] : line_.numbers) {
    check(std::count(asked_.begin(), asked_.end(), key) > 0, concat("it has no key '", key, "'"));
  }
  check(line_.parameters.empty() || takes_parameters_, "it has no parameters");
  check(line_.constant.empty() || takes_constant_, "it has no constant");
}

}  // namespace fedhpc
