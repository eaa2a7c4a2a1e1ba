#include "fedhpc/models/model_file.hpp"

#include <algorithm>
#include <caffe2/serialize/inline_container.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>

#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/models/layer.hpp"
#include "fedhpc/models/script_model.hpp"

#include "core/digest.hpp"
#include "models/families.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kVersion = 1;

Tensor read_constant(const h5::Handle& file, const std::string& path) {
  const h5::Handle dataset = h5::open_dataset(file, path);
  h5::check_numbers(dataset, sizeof(double));
  h5::check_written(dataset);
  std::vector<std::int64_t> shape;
  for (const hsize_t length : h5::shape_of(dataset)) {
    shape.push_back(static_cast<std::int64_t>(length));
  }
  Tensor values = at::empty(shape, at::kDouble);
  if (values.numel() > 0) h5::read_all(dataset, h5::type_of<double>(), values.data_ptr());
  return values;
}

ModelDescription read_lines(const h5::Handle& file, const std::string& source) {
  if (!h5::has_attribute(file, "fedhpc_model")) {
    throw DataError(
        concat(source, " is no model file; fedhpc.export_model makes one of a PyTorch module"));
  }
  const std::int64_t version = h5::read_integer_attribute(file, "fedhpc_model");
  if (version != kVersion) {
    throw DataError(concat(source, " has format ", version, ", this program reads ", kVersion,
                           "; export the model again"));
  }
  ModelDescription description;
  const std::vector<std::string> texts = h5::read_texts(file, "/layers");
  if (texts.size() > LayerDraws::kMostLayers) {
    throw DataError(concat(source, " has ", texts.size(), " layers, expected at most ",
                           LayerDraws::kMostLayers, ", whose draws are told apart"));
  }
  for (const std::string& text : texts) {
    try {
      description.add(line_of(text));
    } catch (const DataError& error) {
      throw DataError(concat(source, ", layer ", description.lines.size(), ": ", error.what()));
    }
  }
  if (!h5::exists(file, "/constants")) return description;
  for (const std::string& name : h5::names_in(file, "/constants")) {
    const Tensor values = read_constant(file, "/constants/" + name);
    if (at::isnan(values).any().item<bool>()) {  // -inf is what masks have
      throw DataError(concat(source, ": constant '", name, "' has values that are NaN"));
    }
    description.constants.emplace(name, values);
  }
  return description;
}

/// The code and the numbers of a script, whatever its file is called and wherever its Python code
/// stood.
void add_script(Digest& digest, const std::string& path) {
  caffe2::serialize::PyTorchStreamReader script(path);
  std::vector<std::string> names = script.getAllRecords();
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (name.starts_with('.') || name.ends_with(".debug_pkl")) continue;
    const auto [bytes, size] = script.getRecord(name);
    digest.add(name);
    digest.add(bytes.get(), size);
  }
}

/// The dimensions that are longer than 1.
Shape true_dimensions(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

ModelDescription read_model_file(const std::string& path) {
  const std::string source = concat("model.file '", path, "'");
  try {
    return read_lines(h5::open_input(path), source);
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(concat(source, " cannot be read: ", error.what(),
                           "; give a file that fedhpc.export_model has made"));
  }
}

std::string digest_of_model_file(const ModelOptions& options) {
  if (options.file.empty()) return {};
  Digest digest;
  if (options.by_autograd()) {
    add_script(digest, options.file);
    return digest.text();
  }
  const h5::Handle file = h5::open_input(options.file);
  for (const std::string& line : h5::read_texts(file, "/layers")) digest.add(line);
  if (!h5::exists(file, "/constants")) return digest.text();
  for (const std::string& name : h5::names_in(file, "/constants")) {
    const Tensor values = read_constant(file, "/constants/" + name);
    digest.add(name);
    digest.add(values.sizes());
    digest.add(values.const_data_ptr(), values.nbytes());
  }
  return digest.text();
}

// Whether the outputs fit is the loss's business (training/loss.hpp).
std::unique_ptr<Model> make_file(const ModelOptions& options, const Shape& shape, const Outputs&) {
  if (options.file.empty()) {
    throw ConfigError(
        "model.name = file needs model.file, a file that fedhpc.export_model has made");
  }
  if (options.by_autograd()) return load_script_model(options.file, shape, options.type);
  std::unique_ptr<Model> model =
      build_model(read_model_file(options.file), concat("model.file '", options.file, "'"));
  const Shape wanted = true_dimensions(model->layers().front().shape);
  const Shape given = true_dimensions(shape);
  // A flat sample has the same values in the same order.
  const bool fits = values_of(wanted) == values_of(given) &&
                    (wanted == given || wanted.size() == 1 || given.size() == 1);
  if (!fits) {
    throw ConfigError(concat("model.file '", options.file, "' takes samples of shape ",
                             at::IntArrayRef(model->layers().front().shape),
                             ", those of data.name are ", at::IntArrayRef(shape),
                             "; choose other data, or export the model for these"));
  }
  return model;
}

}  // namespace fedhpc
