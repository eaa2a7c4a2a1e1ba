#include "fedhpc/data/options.hpp"

#include "fedhpc/data/partition.hpp"

#include "core/or_added.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kZero = 0;
constexpr std::int64_t kLargestWord = (std::int64_t{1} << 32) - 1;

Condition of_dataset(std::vector<std::string> names) {
  return where_or_added(dataset_registry(), "data.name", std::move(names));
}
Condition of_partitioner(std::vector<std::string> names) {
  return where_or_added(partitioner_registry(), "data.partition", std::move(names));
}

/// The samples are made, not read.
Condition generated() { return of_dataset({"glyphs", "covtype_like", "synthetic", "words"}); }

/// The seed draws the validation samples, whatever deals the others.
Condition validated() { return unless("data.validation_fraction", "0"); }

void declare_source(DataOptions& data, OptionSet& options) {
  options.add_choice("data.name", data.name, dataset_registry().names(),
                     "Data set; 'fedhpc list datasets' explains");
  options.add("data.dir", data.dir,
              "Folder of the data files; unset: environment variable FEDHPC_DATA");
  options
      .add("data.file", data.file,
           "Data of data.name = csv, libsvm or hdf5; csv and libsvm may be .gz or .xz")
      .acts(of_dataset({"csv", "libsvm", "hdf5"}));
  options
      .add("data.test_file", data.test_file,
           "The official test set of csv or libsvm (in hdf5 it stands in data.file)")
      .acts(of_dataset({"csv", "libsvm"}));
  options
      .add("data.label_column", data.label_column,
           "Which column of a csv file is the label; the others are the features",
           "last, a name of the file's first row, or a column number from 0")
      .acts(of_dataset({"csv"}));
  options
      .add("data.label_kind", data.label_kind,
           {{"auto", LabelKind::Auto}, {"class", LabelKind::Class}, {"number", LabelKind::Number}},
           "What the labels of a csv, libsvm or hdf5 file are: the class of each sample, or a "
           "number "
           "that a regression is to tell; auto: classes, unless most samples have a number for "
           "themselves, which is refused; of hdf5 numbers where /y_train has fractions or targets")
      .acts(of_dataset({"csv", "libsvm", "hdf5"}));
  options
      .add("data.client_column", data.client_column,
           "Which column of a csv file is the client of each row, for data.partition=natural; "
           "unset: none. Neither label nor client is a feature",
           "last, a name of the file's first row, or a column number from 0")
      .acts(of_dataset({"csv"}));
  options
      .add("data.separator", data.separator,
           {{"auto", Separator::Auto},
            {"comma", Separator::Comma},
            {"semicolon", Separator::Semicolon},
            {"tab", Separator::Tab}},
           "What stands between the columns of a csv file; auto: a semicolon where the first "
           "row has one, else a tab where it has one and no comma, else a comma")
      .acts(of_dataset({"csv"}));
  options
      .add(
          "data.header", data.header,
          {{"auto", Header::Auto}, {"yes", Header::Yes}, {"no", Header::No}},
          "Whether the first row of a csv file names the columns; auto: where more of it are words "
          "than numbers, and what may be either is refused")
      .acts(of_dataset({"csv"}));
  options
      .add("data.seed", data.seed, at_least(kZero),
           "Seed of partition, split, validation samples and generators; unset: run.seed")
      .acts(either(either(generated(), unless("data.partition", "file")), validated()))
      .acts(either(either(generated(), unless("data.partition", "natural")),
                   either(where("data.split", {"client"}), validated())));
  options.add("data.standardize", data.standardize,
              {{"none", Standardize::None},
               {"unit", Standardize::Unit},
               {"half", Standardize::Half},
               {"scalar", Standardize::Scalar},
               {"channel", Standardize::Channel},
               {"pixel", Standardize::Pixel}},
              "none: raw pixels x; unit: x/255; half: (x/255 - .5)/.5; scalar (fmnist, svhn), "
              "channel (cifar10, with ImageNet's constants, and cifar100): (x/255 - m)/s with the "
              "constants of FedMUD's program; pixel: (x - m)/(s + .001) of each pixel or feature "
              "over all samples. Real numbers are taken as they are by none and unit");
  options.add("data.augment", data.augment,
              {{"none", Augment::None}, {"crop_flip", Augment::CropFlip}},
              "crop_flip: each image of a training batch is cut out of itself with 4 zero pixels "
              "around (before standardising) and mirrored with probability 1/2");
}

void declare_partition(DataOptions& data, OptionSet& options) {
  options.add("data.split", data.split,
              {{"client", DataSplit::Client}, {"official", DataSplit::Official}},
              "client: official train and test are merged and every client splits its own samples; "
              "official: clients share the training set, the server tests on the test set");
  options.add_choice("data.partition", data.partition, partitioner_registry().names(),
                     "Which samples a client holds; 'fedhpc list partitioners' explains");
  options
      .add("data.partition_file", data.partition_file,
           "HDF5 file with the partition of data.partition=file, e.g. a result file")
      .acts(of_partitioner({"file"}));
  options.add("data.clients", data.clients, count_from(1),
              "Number of clients; with data.partition=file the file's");
  options
      .add("data.alpha", data.alpha, above_up_to(0.0, 1e298),  // draws of all clients have a sum
           "Concentration of data.partition=dirichlet; large is close to iid")
      .acts(of_partitioner({"dirichlet"}));
  options
      .add("data.min_samples", data.min_samples, count_from(0),
           "Least samples of a client with data.partition=dirichlet")
      .acts(of_partitioner({"dirichlet"}));
  options
      .add("data.labels_per_client", data.labels_per_client, count_from(1),
           "Labels each client holds with data.partition=labels and pfedme")
      .acts(of_partitioner({"labels", "pfedme"}));
  options
      .add(
          "data.labels_rule", data.labels_rule,
          {{"random", LabelsRule::Random},
           {"least_used", LabelsRule::LeastUsed},
           {"consecutive", LabelsRule::Consecutive}},
          "Labels of client u: u mod K and others at random, the least used so far, or u, u+1, ... "
          "mod K")
      .acts(of_partitioner({"labels"}));
  options
      .add("data.shards_per_client", data.shards_per_client, count_from(1),
           "Shards each client gets with data.partition=shards, data.clients times as many in "
           "all")
      .acts(of_partitioner({"shards"}));
  options
      .add("data.pfedme_seed", data.pfedme_seed, between(kZero, kLargestWord),
           "Seed of numpy's legacy generator, which gives the sizes of data.partition=pfedme; 1: "
           "the published ones")
      .acts(of_partitioner({"pfedme"}));
  options
      .add("data.train_fraction", data.train_fraction, above_up_to(0.0, 1.0),
           "Share of its samples a client trains on with data.split=client")
      .acts(where("data.split", {"client"}))
      .acts(unless("data.partition", "file"))
      .acts(where("data.train_per_class", {"0"}));
  options.add("data.validation_fraction", data.validation_fraction, from_below(0.0, 1.0),
              "Share of its training samples that a client sets aside: not trained on, scored as "
              "the validation_ series of /rounds");
  options
      .add(
          "data.train_per_class", data.train_per_class, count_from(0),
          "Training samples of each of a client's labels (data.partition=labels; 0: all there are)")
      .acts(of_partitioner({"labels"}))
      .acts(where("data.split", {"client"}));
  options
      .add("data.test_per_class", data.test_per_class, count_from(0),
           "Test samples of each of a client's labels; set together with data.train_per_class")
      .acts(of_partitioner({"labels"}))
      .acts(where("data.split", {"client"}));
}

void declare_generators(DataOptions& data, OptionSet& options) {
  options
      .add("data.samples_per_client", data.samples_per_client, count_from(1),
           "Samples generated per client by glyphs, covtype_like, synthetic and words; with "
           "data.split = official a fifth as many more, at least 1, are the test set")
      .acts(generated());
  options
      .add("data.features", data.features, count_from(1),
           "Features of a synthetic sample; words in one of words")
      .acts(of_dataset({"synthetic", "words"}));
  options
      .add("data.classes", data.classes, count_from(2),
           "Classes of synthetic; different words of words, at least 3")
      .acts(of_dataset({"synthetic", "words"}));
  options
      .add("data.own_words", data.own_words, between(0.0, 1.0),
           "Share of words that a client of data.name=words follows up in a way of its own")
      .acts(of_dataset({"words"}));
  options
      .add("data.synthetic_alpha", data.synthetic_alpha, at_least(0.0),
           "Synthetic(alpha, beta): deviation of what is added to all numbers of a client's model; "
           "it changes no label, as all scores rise alike")
      .acts(of_dataset({"synthetic"}));
  options
      .add("data.synthetic_beta", data.synthetic_beta, at_least(0.0),
           "Synthetic(alpha, beta): by how much their features' means differ, a standard deviation")
      .acts(of_dataset({"synthetic"}));
  options
      .add("data.synthetic_clusters", data.synthetic_clusters, count_from(0),
           "Client k of synthetic has the model and the mean of cluster k mod this; 0: its own")
      .acts(of_dataset({"synthetic"}));
}

}  // namespace

void DataOptions::declare(OptionSet& options) {
  declare_source(*this, options);
  declare_partition(*this, options);
  declare_generators(*this, options);
}

}  // namespace fedhpc
