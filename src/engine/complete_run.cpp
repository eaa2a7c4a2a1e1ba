// What a result file says of its run, and whether it is what a run would give.

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "fedhpc/data/dataset.hpp"
#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/io/results_writer.hpp"
#include "fedhpc/io/time_limit.hpp"

namespace fedhpc {

namespace {

constexpr double kReadingLimit = 20;  // s, for attributes of a result file

bool same_digests(const std::string& results, const Digests& digests) {
  try {
    const h5::Handle file = h5::open_input(results);
    return std::ranges::all_of(digests.named(), [&](const auto& one) {
      const auto& [name, digest] = one;
      if (!h5::has_attribute(file, name)) return true;
      const std::string stored = h5::read_text_attribute(file, name);
      // Of a run that went on with mended code there are several, the last one's last.
      const bool same_code = name == Digests::kCode && !digest.empty() && stored.ends_with(digest);
      return stored == digest || same_code || (name == Digests::kData && same_data(stored, digest));
    });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string config_in(const std::string& path) {
  return within_time(kReadingLimit, [&] { return read_config(h5::open_input(path)); }).value_or("");
}

std::optional<RunStatus> status_of_run(const std::string& results) {
  const auto lines = within_time(kReadingLimit, [&]() -> std::string {
    const h5::Handle file = h5::open_input(results);
    if (!h5::has_attribute(file, "started") || !h5::exists(file, "/rounds"))
      return RunStatus::kForeign;
    return concat(identity_of(file), '\n', h5::read_text_attribute(file, "status"), '\n',
                  h5::shape_of(h5::open_dataset(file, "/rounds/round")).at(0), ' ',
                  h5::was_closed(file));
  });
  if (!lines) return std::nullopt;
  std::istringstream stream(*lines);
  RunStatus found;
  std::getline(stream, found.started);
  std::getline(stream, found.status);
  stream >> found.rounds >> found.closed;
  return found;
}

std::optional<RunStatus> end_of_run(const std::string& results, const Config& config) {
  const std::string path = link_target(results);
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed) || h5::is_hdf5(path) != true) return {};
  const std::optional<RunStatus> run = status_of_run(path);
  if (!run || !run->has_ended()) return {};
  const bool in_vain = run->status == "diverged" && config.run.stop_on_divergence;
  if (run->rounds < config.run.rounds && !in_vain) return {};
  try {
    const Config before(parse_ini(config_in(path), path), path);
    const bool same = std::ranges::none_of(config.options().entries(), [&](const auto& entry) {
      return changes_meaning(entry, before);
    });
    if (same) return run;
  } catch (const Error&) {
    // It is of a program with other keys.
  }
  return {};
}

std::optional<RunStatus> is_over(const std::string& results, const Experiment& experiment,
                                 Communicator& comm) {
  std::optional<RunStatus> end;
  if (comm.rank() == 0) end = end_of_run(results, experiment.config());
  if (end && !same_digests(link_target(results), experiment.parts().digests)) {
    end.reset();
  }
  const std::string found = end ? concat(end->status, ' ', end->rounds) : "";
  std::istringstream words(comm.all_texts(found).front());
  RunStatus over;
  if (!(words >> over.status >> over.rounds)) return {};
  return over;
}

}  // namespace fedhpc
