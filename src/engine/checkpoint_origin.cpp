#include "engine/checkpoint_origin.hpp"

#include <algorithm>

#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/processor.hpp"
#include "fedhpc/engine/recorder.hpp"

#include "io/tensor_types.hpp"

namespace fedhpc {

namespace {

constexpr const char* kProcessor = "processor";  // attributes of the file
constexpr const char* kCommit = "git_commit";

/// Throws DataError unless the data at hand are those a checkpoint was made with.
void check_data(const h5::Handle& file, const std::string& path, const Parts& parts) {
  const Partition& partition = parts.partition;
  const auto train = h5::read_vector<std::int64_t>(file, "/clients/train_samples");
  const auto test = h5::read_vector<std::int64_t>(file, "/clients/test_samples");
  const std::int64_t clients = partition.clients();
  bool same = static_cast<std::int64_t>(train.size()) == clients && test.size() == train.size();
  for (std::int64_t c = 0; same && c < clients; ++c) {
    const auto i = static_cast<std::size_t>(c);
    same = train[i] == partition.train.count(c) && test[i] == partition.test.count(c);
  }
  const auto refuse_unless = [&](bool as_before, const char* difference) {
    if (as_before) return;
    throw DataError(concat("checkpoint '", path, "' was made with other data: its clients have ",
                           difference, " samples; give the data of that run"));
  };
  refuse_unless(same, "other numbers of");
  refuse_unless(!h5::has_attribute(file, Digests::kData) ||  // of fedhpc before it had one
                    same_data(h5::read_text_attribute(file, Digests::kData), parts.digests.data),
                "other");
  const h5::Handle state = h5::open_group(file, "/state");
  if (!h5::has_attribute(state, kPartitionDigest)) return;  // of fedhpc before it had one
  refuse_unless(h5::read_text_attribute(state, kPartitionDigest) == digest_of(partition), "other");
}

/// Throws DataError unless the model file at hand computes what that of the checkpoint did.
void check_model(const h5::Handle& file, const Resumption& from, const Parts& parts) {
  const auto refuse = [&](const char* what, const std::string& key, const std::string& value,
                          const char* had) {
    throw DataError(concat("checkpoint '", from.checkpoint, "' was made with another ", what, ": ",
                           key, " '", value, "' had other ", had, "; give the file of that run"));
  };
  // A file without such an attribute is of another model, or of fedhpc before it had one.
  const ModelOptions& model = parts.config.model;
  if (h5::has_attribute(file, Digests::kModel) &&
      h5::read_text_attribute(file, Digests::kModel) != parts.digests.model) {
    refuse("model", "model.file", model.file, "layers");
  }
  const h5::Handle state = h5::open_group(file, "/state");
  if (!from.holds_initial_model && h5::has_attribute(state, kWeightsDigest) &&
      h5::read_text_attribute(state, kWeightsDigest) != parts.weights_digest) {
    refuse("first model", model.key_of_weights(), model.file_of_weights(), "weights");
  }
}

/// A warning where the code of a plug-in or of a method in Python is not that of the checkpoint:
/// one that failed is mended, and goes on.
std::string other_code(const h5::Handle& file, const std::string& path, const Parts& parts) {
  if (!h5::has_attribute(file, Digests::kCode)) return {};  // of fedhpc's own, or before it had one
  const std::string codes = h5::read_text_attribute(file, Digests::kCode);  // the last one's last
  if (!parts.digests.code.empty() && codes.ends_with(parts.digests.code)) return {};
  return concat("checkpoint '", path,
                "' was made with other code of algorithm.name = ", parts.config.algorithm_name,
                "; the run goes on with this one");
}

/// A warning where ranks run on a type of processor that has not taken part so far.
std::string other_processor(const h5::Handle& file, const std::string& path, const Parts& parts) {
  if (!h5::has_attribute(file, kProcessor)) return {};  // of fedhpc before it had one
  const std::string known = h5::read_text_attribute(file, kProcessor);
  if (with_added(known, parts.processors) == known) return {};
  return concat("checkpoint '", path, "' was made on another type of processor (", known, ", here ",
                parts.processors,
                "): from here on numbers differ by rounding from those of a run on one type");
}

/// A warning where a build of fedhpc goes on that has not taken part so far.
std::string other_build(const h5::Handle& file, const std::string& path) {
  const BuildInfo here = build_info();
  const std::string commits = h5::read_text_attribute(file, kCommit);
  if (with_added(commits, here.commit) == commits) return {};
  return concat("checkpoint '", path, "' was made by another build of fedhpc (commit ", commits,
                ", this is ", here.commit, "): what has changed in between acts from here on");
}

/// Throws DataError unless a checkpoint holds all that the result file goes on with. Where the code
/// is another one (`mended`), it may lack series.
void check_records(const h5::Handle& file, const Resumption& from, const Experiment& experiment,
                   bool mended) {
  const Parts& parts = experiment.parts();
  const auto clients = static_cast<hsize_t>(experiment.partition().clients());
  const auto refuse = [&](const std::string& name, const std::string& problem) {
    throw DataError(
        concat("checkpoint '", from.checkpoint, "' cannot be used: data set '", name, "' ", problem,
               mended ? "; put the code back that it was made with, or begin the run anew"
                      : "; give RUN.ckpt.N.h5 as fedhpc run wrote it"));
  };
  const auto look = [&](const std::string& name, const std::vector<hsize_t>& tail) {
    if (!h5::exists(file, name)) refuse(name, "is missing");
    const h5::Handle dataset = h5::open_dataset(file, name);
    const std::vector<hsize_t> shape = h5::shape_of(dataset);
    if (!h5::holds_numbers(dataset)) refuse(name, "holds no numbers");
    if (shape.size() != tail.size() + 1 ||
        !std::equal(tail.begin(), tail.end(), shape.begin() + 1)) {
      refuse(name, "has another shape");
    }
    if (!h5::extendible(dataset)) refuse(name, "cannot be extended");
    return static_cast<std::int64_t>(shape.front());
  };
  std::vector<std::string> series{"round"};
  for (const Metric& metric : experiment.series()) series.push_back(metric.name);
  for (const std::string& name : series) {
    const std::string path = "/rounds/" + name;
    // What other code has got since is NaN in the rounds so far.
    if (mended && name != "round" && !h5::exists(file, path)) continue;
    if (look(path, {}) != from.round) refuse(path, concat("has not ", from.round, " entries"));
  }
  const std::string measure = measure_of(parts.loss);
  look("/clients/" + measure, {clients});
  look("/clients/evaluated_rounds", {});
  for (const std::string& name : {std::string("edge"), std::string("train_samples"),
                                  std::string("test_samples"), "best_" + measure}) {
    const std::string path = "/clients/" + name;
    if (!h5::exists(file, path)) refuse(path, "is missing");
    if (h5::shape_of(h5::open_dataset(file, path)) != std::vector<hsize_t>{clients}) {
      refuse(path, "has another shape");
    }
  }
  const RunOptions& run = experiment.config().run;
  if (run.saves("init") && !from.holds_initial_model) refuse("/model/init/global", "is missing");
  if (run.saves("draws")) {
    look("/draws/cohort", {static_cast<hsize_t>(parts.participants_limit())});
    const std::string factors = "/draws/factors";
    const std::vector<NamedTensor> draws = parts.method().drawn_in(1);
    for (const NamedTensor& draw : draws) {
      const std::string path = concat(factors, "/", draw.name);
      look(path, shape_of(draw.values));
      if (!h5::holds(h5::open_dataset(file, path), type_of(draw.values))) {
        refuse(path, "has another type");
      }
    }
    const std::size_t known = h5::exists(file, factors) ? h5::names_in(file, factors).size() : 0;
    if (known != draws.size()) refuse(factors, "has draws that are made no more");
  }
}

/// Throws DataError where epsilon of past rounds would be another one: the method sends more or fewer
/// changes a round than it did, or clients were drawn otherwise, as of fedhpc before it had the
/// attribute.
void check_privacy(const h5::Handle& file, const std::string& path, const Parts& parts) {
  const h5::Handle state = h5::open_group(file, "/state");
  if (!parts.accountant) return;
  if (!h5::has_attribute(state, kUploads)) {
    if (!parts.draws_each()) return;
    throw DataError(concat("checkpoint '", path,
                           "' has cohorts of a fixed size, of which epsilon is no bound; begin the "
                           "run anew"));
  }
  const std::int64_t before = h5::read_integer_attribute(state, kUploads);
  const std::int64_t now = parts.method().traits().averaged_uploads;
  if (before == now) return;
  throw DataError(concat("checkpoint '", path, "' is of a method with averaged_uploads = ", before,
                         ", and it has ", now,
                         " now: epsilon of past rounds would lose its meaning; put it back"));
}

}  // namespace

void check_origin(const h5::Handle& file, const Resumption& from, const Experiment& experiment) {
  const Parts& parts = experiment.parts();
  check_data(file, from.checkpoint, parts);
  check_model(file, from, parts);
  const std::string code = other_code(file, from.checkpoint, parts);
  const std::string build = other_build(file, from.checkpoint);
  check_records(file, from, experiment, /*mended=*/!code.empty() || !build.empty());
  check_privacy(file, from.checkpoint, parts);
  for (const auto& other : {code, other_processor(file, from.checkpoint, parts), build}) {
    run_log().of_run(LogLevel::Warning, other);
  }
}

}  // namespace fedhpc
