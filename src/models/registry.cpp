#include "fedhpc/models/model.hpp"

#include "core/or_added.hpp"
#include "models/description_writer.hpp"
#include "models/families.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kWidest = std::int64_t{1} << 24;  // of a hidden layer
constexpr std::int64_t kDeepest = 1000;                  // layers

/// fc1 ... fcn with ReLU between them.
std::unique_ptr<Model> fully_connected(const std::vector<std::int64_t>& shape,
                                       std::vector<std::int64_t> outputs) {
  DescriptionWriter net(shape);
  if (shape.size() != 1) net.reshape({values_of(shape)});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    net.linear(concat("fc", i + 1), outputs[i], Bias::Use);
    if (i + 1 < outputs.size()) net.add("relu");
  }
  return net.build();
}

}  // namespace

std::unique_ptr<Model> make_mlr(const ModelOptions&, const std::vector<std::int64_t>& shape,
                                const Outputs& outputs) {
  return fully_connected(shape, {outputs});
}

std::unique_ptr<Model> make_mlr_sigmoid(const ModelOptions&, const std::vector<std::int64_t>& shape,
                                        const Outputs& outputs) {
  DescriptionWriter net(shape);
  if (shape.size() != 1) net.reshape({values_of(shape)});
  net.linear("fc1", outputs, Bias::Use);
  net.add("sigmoid");
  return net.build();
}

std::unique_ptr<Model> make_dnn(const ModelOptions& options, const std::vector<std::int64_t>& shape,
                                const Outputs& outputs) {
  std::vector<std::int64_t> widths = options.hidden;
  widths.push_back(outputs);
  return fully_connected(shape, std::move(widths));
}

Registry<MakeModel>& model_registry() {
  static Registry<MakeModel> registry({
#define FEDHPC_MODEL(name, sentence) {#name, sentence, make_##name},
#include "models/models.def"
#undef FEDHPC_MODEL
  });
  return registry;
}

std::unique_ptr<Model> make_model(const ModelOptions& options,
                                  const std::vector<std::int64_t>& shape, const Outputs& outputs) {
  return model_registry().find(options.name, "model.name")(options, shape, outputs);
}

Condition of_image_model() {
  return where_or_added(model_registry(), "model.name",
                        {
#define FEDHPC_MODEL(name, sentence)
#define FEDHPC_IMAGE_MODEL(name, sentence) #name,
#include "models/models.def"
#undef FEDHPC_MODEL
                        });
}

namespace {

void declare_sequence_models(OptionSet& options, ModelOptions& of) {
  const auto acts_for = [](std::vector<std::string> names) {
    return where_or_added(model_registry(), "model.name", std::move(names));
  };
  const Condition sequences = acts_for({"lstm_leaf", "transformer"});
  const auto size = between<std::int64_t>(1, kWidest);
  options
      .add_or_auto("model.vocabulary", of.vocabulary, size,
                   "sequence models: rows of the embedding; auto: the number of classes")
      .acts(sequences);
  options
      .add_or_auto("model.embedding", of.embedding, size,
                   "sequence models: columns of the embedding; auto: lstm_leaf 8, transformer 96")
      .acts(sequences);
  options
      .add_or_auto("model.padding", of.padding, between<std::int64_t>(-1, kWidest),
                   "sequence models: the number without meaning, whose row of the embedding has no "
                   "gradient, -1 for none; auto: lstm_leaf -1, transformer 0")
      .acts(sequences);
  options
      .add_or_auto("model.layers", of.layers, between<std::int64_t>(1, kDeepest),
                   "sequence models: number of layers; auto: lstm_leaf 2, transformer 3")
      .acts(sequences);
  options.add("model.units", of.units, size, "lstm_leaf: hidden values of each layer")
      .acts(acts_for({"lstm_leaf"}));
  options
      .add("model.places", of.places, Names<Places>{{"last", Places::Last}, {"all", Places::All}},
           "lstm_leaf: a prediction after the last place of a sample, or after each of its places")
      .acts(acts_for({"lstm_leaf"}));
  options.add("model.heads", of.heads, size, "transformer: heads, which divide the embedding")
      .acts(acts_for({"transformer"}));
  options
      .add("model.feed_forward", of.feed_forward, size,
           "transformer: hidden values of the feed-forward part of each layer")
      .acts(acts_for({"transformer"}));
  options
      .add("model.dropout", of.dropout, between(0.0, 1.0),
           "transformer: probability of dropout, behind the positions, in attention and in layers")
      .acts(acts_for({"transformer"}));
}

void declare_image_models(OptionSet& options, ModelOptions& of) {
  options
      .add("model.norm", of.norm,
           Names<NormChoice>{{"auto", NormChoice::Auto},
                             {"none", NormChoice::None},
                             {"batch", NormChoice::Batch},
                             {"group", NormChoice::Group}},
           "image models: normalisation after each convolution; auto: the family's own")
      .acts(of_image_model());
  options
      .add("model.groups", of.groups, between<std::int64_t>(1, kWidest),
           "groups of channels that group norm normalises each on its own (as many as there are "
           "channels: instance norm); they divide every number of channels")
      .acts(of_image_model())
      .acts(where("model.norm", {"group"}));
  options
      .add(
          "model.bias", of.bias,
          Names<BiasChoice>{
              {"auto", BiasChoice::Auto}, {"true", BiasChoice::True}, {"false", BiasChoice::False}},
          "image models: biases of the convolutions (cnn: and of fc1); auto: the family's own")
      .acts(of_image_model());
  options
      .add("model.stem", of.stem, Names<Stem>{{"cifar", Stem::Cifar}, {"imagenet", Stem::Imagenet}},
           "resnet18: 3x3 convolution, or 7x7 of stride 2 and pooling")
      .acts(where_or_added(model_registry(), "model.name", {"resnet18"}));
  options
      .add("model.width", of.width, above(0.0), "image models: factor of every number of channels")
      .acts(of_image_model());
}

}  // namespace

Condition of_model_with_images() { return either(of_image_model(), where("model.name", {"file"})); }

void ModelOptions::declare(OptionSet& options) {
  options.add_choice("model.name", name, model_registry().names(),
                     "model family (fedhpc list models)");
  options
      .add("model.hidden", hidden, between<std::int64_t>(1, kWidest),
           "dnn: widths of the hidden layers")
      .acts(where_or_added(model_registry(), "model.name", {"dnn"}));
  options
      .add(
          "model.init", init,
          Names<InitRule>{{"auto", InitRule::Auto},
                          {"torch", InitRule::Torch},
                          {"normal01", InitRule::Normal01},
                          {"kaiming_out", InitRule::KaimingOut},
                          {"xavier", InitRule::Xavier},
                          {"keras", InitRule::Keras},
                          {"orthogonal", InitRule::Orthogonal}},
          "initial weights: those of model.file, else uniform in 1/sqrt(fan_in) (torch); normal "
          "of deviation 0.01 without biases; normal of variance 2/fan_out; uniform in "
          "sqrt(6/(fan_in + fan_out)), with drawn biases (xavier) or none (keras); orthogonal. "
          "Factors of tdpfed, fedlmt, fedpara and fedmud (start = factors) have draws of their own")
      .acts(where("model.init_file", {""}))
      .acts(unless("model.backend", "autograd"));
  declare_image_models(options, *this);
  declare_sequence_models(options, *this);
  options
      .add("model.file", file, "model file of model.name = file; fedhpc.export_model makes one",
           "the path of a file")
      .acts(where("model.name", {"file"}));
  options
      .add(
          "model.backend", backend,
          Names<Backend>{{"batched", Backend::Batched}, {"autograd", Backend::Autograd}},
          "how model.file trains. batched: many clients at a time; autograd: any TorchScript file, "
          "such as fedhpc.script_model makes, one client after the other, on the CPU")
      .acts(where("model.name", {"file"}));
  options.add("model.init_file", init_file,
              "result file whose /model/init (else /model/global) holds the initial weights",
              "the path of an HDF5 file");
  options
      .add("model.init_state", init_state,
           Names<InitState>{{"initial", InitState::Initial}, {"final", InitState::Final}},
           "what of model.init_file is taken: what its run began with, or what it ended with "
           "(/model/global)")
      .acts(unless("model.init_file", ""));
}

}  // namespace fedhpc
