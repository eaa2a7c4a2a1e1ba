// When a run started, and what tells it from all others.

#include <cstdio>
#include <ctime>
#include <random>

#include "fedhpc/core/error.hpp"
#include "fedhpc/io/results_writer.hpp"

namespace fedhpc {

std::string new_run_id() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", device(), device());
  return text;
}

std::string identity_of(const h5::Handle& file) {
  const std::string started = h5::read_text_attribute(file, "started");
  if (!h5::has_attribute(file, "run_id")) return started;  // of fedhpc before it had one
  return concat(started, ", run_id ", h5::read_text_attribute(file, "run_id"));
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace fedhpc
