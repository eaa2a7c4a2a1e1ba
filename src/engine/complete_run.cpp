// Whether a result is what a run would give.

#include <algorithm>
#include <filesystem>

#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

namespace {

bool same_digests(const h5::Handle& file, const Digests& digests) {
  return std::ranges::all_of(digests.named(), [&](const auto& one) {
    const char* name = one.first.c_str();
    return !h5::has_attribute(file, name) || h5::read_text_attribute(file, name) == one.second;
  });
}

bool found_complete(const std::string& path, const Experiment& experiment) {
  const Config& config = experiment.config();
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed) || h5::is_hdf5(path) != true) return false;
  const std::optional<RunStatus> run = status_of_run(path);
  const bool complete = run && run->closed && run->status == "complete";
  if (!complete || run->rounds != config.run.rounds) return false;
  try {
    const Config before(parse_ini(config_in(path), path), path);
    const bool same = std::ranges::none_of(config.options().entries(), [&](const auto& entry) {
      return changes_meaning(entry, before);
    });
    return same && same_digests(h5::open_input(path), experiment.parts().digests);
  } catch (const Error&) {  // of a program with other keys
    return false;
  }
}

}  // namespace

bool is_complete(const std::string& results, const Experiment& experiment, Communicator& comm) {
  const bool found = comm.rank() == 0 && found_complete(link_target(results), experiment);
  return comm.all_texts(found ? "complete" : "").front() == "complete";
}

}  // namespace fedhpc
