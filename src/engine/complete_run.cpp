// Whether a result is what a run would give.

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

namespace {

bool same_digests(const std::string& results, const Digests& digests) {
  try {
    const h5::Handle file = h5::open_input(results);
    return std::ranges::all_of(digests.named(), [&](const auto& one) {
      const char* name = one.first.c_str();
      return !h5::has_attribute(file, name) || h5::read_text_attribute(file, name) == one.second;
    });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

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
