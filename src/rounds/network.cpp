#include "fedhpc/rounds/network.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

double& entry(std::vector<double>& seconds, std::int64_t index) {
  require(index >= 0 && index < static_cast<std::int64_t>(seconds.size()),
          "the clock knows its clients and edges");
  return seconds[static_cast<std::size_t>(index)];
}

/// The number of client or edge `index`.
double in_turn(const std::vector<double>& numbers, std::int64_t index) {
  require(index >= 0, "clients and edges count from 0");
  return numbers[static_cast<std::size_t>(index) % numbers.size()];
}

double largest(const std::vector<double>& seconds) {
  return seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

void NetworkOptions::declare(OptionSet& options) {
  const std::string of_several = "; of several numbers client i has number i mod their count";
  options.add("network.client_edge_mbps", client_edge_mbps, at_least(0.0),
              "megabits per second between a client and its edge; 0: no limit. simulated_seconds "
              "is NaN while all of network.* is 0" +
                  of_several);
  options.add("network.edge_cloud_mbps", edge_cloud_mbps, at_least(0.0),
              "megabits per second between an edge and the cloud; 0: no limit; of several numbers "
              "edge i has number i mod their count");
  options.add("network.client_cloud_mbps", client_cloud_mbps, at_least(0.0),
              "megabits per second between a client and the cloud; 0: no limit" + of_several);
  options.add("network.latency_ms", latency_ms, at_least(0.0),
              "milliseconds that every payload takes beside its transmission");
  options.add(
      "network.step_seconds", step_seconds, at_least(0.0),
      "seconds that a simulated client takes for the gradient of one batch; a local step of "
      "pfedme, tdpfed, sfedhp, perfedavg or apfl takes several" +
          of_several);
}

NetworkModel::NetworkModel(NetworkOptions options) : options_(std::move(options)) {
  on_ = options_.latency_ms > 0;
  for (const std::vector<double>* numbers : {&options_.client_edge_mbps, &options_.edge_cloud_mbps,
                                             &options_.client_cloud_mbps, &options_.step_seconds}) {
    require(!numbers->empty(), "a key of network has a number");
    on_ = on_ || largest(*numbers) > 0;
  }
}

const std::vector<double>& NetworkModel::mbps(Link link) const {
  switch (link) {
    case Link::ClientEdge:
      return options_.client_edge_mbps;
    case Link::EdgeCloud:
      return options_.edge_cloud_mbps;
    case Link::ClientCloud:
      return options_.client_cloud_mbps;
  }
  throw std::logic_error("a link has a bandwidth");
}

double NetworkModel::payload_seconds(Link link, std::int64_t sender, std::int64_t bytes) const {
  require(bytes >= 0, "a payload has no negative size");
  if (bytes == 0) return 0;  // nothing travels
  const double latency = options_.latency_ms / 1e3;
  const double bandwidth = in_turn(mbps(link), sender);
  return bandwidth > 0 ? latency + static_cast<double>(bytes) * (8 / (bandwidth * 1e6)) : latency;
}

double NetworkModel::local_seconds(std::int64_t client, std::int64_t gradients) const {
  require(gradients >= 0, "there is no negative number of gradients");
  return static_cast<double>(gradients) * in_turn(options_.step_seconds, client);
}

RoundClock::RoundClock(bool on, std::int64_t num_clients, std::int64_t num_edges) : on_(on) {
  if (!on) return;
  times_.clients.resize(static_cast<std::size_t>(num_clients));
  times_.edges.resize(static_cast<std::size_t>(num_edges));
}

void RoundClock::go_on_from(const Times& times) {
  require(
      times.clients.size() == times_.clients.size() && times.edges.size() == times_.edges.size(),
      "a clock of the same clients and edges");
  times_ = times;
}

void RoundClock::pass(std::int64_t client, double seconds) {
  if (!on_) return;
  entry(times_.clients, client) += seconds;
  times_.edge_round_open = true;
}

void RoundClock::pass_at_edge(std::int64_t edge, double seconds) {
  if (!on_) return;
  entry(times_.edges, edge) += seconds;
}

void RoundClock::cover(std::int64_t num_clients) {
  if (!on_) return;
  require(!times_.edge_round_open, "clients change between edge rounds");
  times_.clients.assign(static_cast<std::size_t>(num_clients), 0);
}

void RoundClock::finish_edge_round() {
  if (!on_) return;
  times_.slowest.push_back(largest(times_.clients));
  std::fill(times_.clients.begin(), times_.clients.end(), 0.0);
  times_.edge_round_open = false;
}

double RoundClock::seconds(Communicator& comm) const {
  if (!on_) return std::numeric_limits<double>::quiet_NaN();
  require(!times_.edge_round_open,
          "every edge round is finished before the round's seconds are known");
  Tensor longest = at::empty({static_cast<std::int64_t>(times_.slowest.size()) + 1}, at::kDouble);
  auto* values = longest.data_ptr<double>();
  std::copy(times_.slowest.begin(), times_.slowest.end(), values);
  values[times_.slowest.size()] = largest(times_.edges);
  comm.max_(longest);
  double total = 0;
  for (std::int64_t i = 0; i < longest.numel(); ++i) total += values[i];
  return total;
}

}  // namespace fedhpc
