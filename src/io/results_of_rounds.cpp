// What a result file gets as its run goes on.

#include <filesystem>
#include <limits>

#include "fedhpc/core/device.hpp"
#include "fedhpc/io/results_writer.hpp"

#include "io/tensor_types.hpp"

namespace fedhpc {

void ResultsWriter::append_client_scores(std::int64_t round, const std::vector<double>& now,
                                         const std::vector<double>& best) {
  check_it_is_there();
  h5::append(client_scores_, h5::type_of<double>(), now.data());
  h5::append(evaluated_rounds_, h5::type_of<std::int64_t>(), &round);
  h5::write_all(best_scores_, h5::type_of<double>(), best.data());
  h5::flush(client_scores_);
  h5::flush(evaluated_rounds_);
  h5::flush(best_scores_);
}

void ResultsWriter::append_cohort(const std::vector<std::int64_t>& cohort) {
  check_it_is_there();
  std::vector<std::int64_t> padded = cohort;
  require(static_cast<std::int64_t>(padded.size()) <= cohort_size_, "a cohort has room in its row");
  padded.resize(static_cast<std::size_t>(cohort_size_), -1);
  h5::append(cohorts_, h5::type_of<std::int64_t>(), padded.data());
  h5::flush(cohorts_);
}

void ResultsWriter::append_draws(const std::vector<NamedTensor>& draws) {
  const auto refuse = [](const std::string& problem) {
    throw Error(concat("drawn_in() ", problem,
                       "; it has to give the arrays of round 1: names, shapes and types"));
  };
  if (draws.size() != draws_.size()) {
    refuse(concat("gives ", draws.size(), " arrays, and gave ", draws_.size()));
  }
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const auto& [declared, dataset] = draws_[i];
    const Tensor values = on_host(draws[i].values).contiguous();
    if (draws[i].name != declared.name || values.sizes() != declared.values.sizes() ||
        values.scalar_type() != declared.values.scalar_type()) {
      refuse(concat("gives '", draws[i].name, "' ", toString(values.scalar_type()), values.sizes(),
                    " for '", declared.name, "' ", toString(declared.values.scalar_type()),
                    declared.values.sizes()));
    }
    h5::append(dataset, type_of(values), values.const_data_ptr());
    h5::flush(dataset);
  }
}

void ResultsWriter::write_model(const std::string& group,
                                const std::vector<NamedTensor>& parameters) {
  const auto& datasets = model_.at(group);
  require(parameters.size() == datasets.size(), "the model written is the model declared");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    require(parameters[i].name == datasets[i].first, "the model written is the model declared");
    const Tensor values = on_host(parameters[i].values).contiguous();
    h5::write_all(datasets[i].second, type_of(values), values.data_ptr());
  }
  models_written();
}

void ResultsWriter::models_written() { h5::flush_file(file_); }

void ResultsWriter::write_personal(std::int64_t client,
                                   const std::vector<NamedTensor>& parameters) {
  require(parameters.size() == personal_.size(), "the model written is the model declared");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    require(parameters[i].name == personal_[i].first, "the model written is the model declared");
    const Tensor values = on_host(parameters[i].values).contiguous();
    h5::write_rows(personal_[i].second, type_of(values), static_cast<hsize_t>(client), 1,
                   values.data_ptr());
  }
}

void ResultsWriter::append_round(std::int64_t round, const std::vector<double>& values) {
  require(values.size() == series_.size(), "one value per series");
  check_it_is_there();
  for (std::size_t i = 0; i < values.size(); ++i) {
    h5::append(series_[i], h5::type_of<double>(), &values[i]);
    h5::flush(series_[i]);
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const h5::Handle& one : left_) {
    h5::append(one, h5::type_of<double>(), &kNone);
    h5::flush(one);
  }
  h5::append(round_, h5::type_of<std::int64_t>(), &round);
  h5::flush(round_);
  if (!swmr_) h5::flush_file(file_);
}

void ResultsWriter::check_it_is_there() {
  if (id_of(path_) != id_) throw Error("the file or its folder was removed or renamed meanwhile");
  if (!swmr_) return;  // flushes cut off what was taken in advance
  // Looked at before anything is written, which would make the file longer again.
  std::error_code failed;
  const std::uintmax_t bytes = std::filesystem::file_size(path_, failed);
  if (failed) return;
  if (bytes < largest_) {
    lost_ = true;
    throw Error("the file was cut off or written over meanwhile");
  }
  largest_ = bytes;
}

void ResultsWriter::finish(const std::string& status) {
  if (lost_) return;
  h5::sync_file(file_);  // before it says that it is complete
  h5::rewrite_attribute(file_, "finished", utc_now());
  h5::rewrite_attribute(file_, "status", status);
  h5::sync_file(file_);
  check_it_is_there();
}

}  // namespace fedhpc
