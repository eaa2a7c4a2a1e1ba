#include "fedhpc/rounds/network.hpp"

#include <algorithm>
#include <limits>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

double& entry(std::vector<double>& seconds, std::int64_t index) {
  require(index >= 0 && index < static_cast<std::int64_t>(seconds.size()),
          "the clock knows its clients and edges");
  return seconds[static_cast<std::size_t>(index)];
}

double largest(const std::vector<double>& seconds) {
  return seconds.empty() ? 0 : *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

void NetworkOptions::declare(OptionSet& options) {
  options.add("network.client_edge_mbps", client_edge_mbps, at_least(0.0),
              "megabits per second between a client and its edge; 0: no limit. simulated_seconds "
              "is NaN while all of network.* is 0");
  options.add("network.edge_cloud_mbps", edge_cloud_mbps, at_least(0.0),
              "megabits per second between an edge and the cloud; 0: no limit");
  options.add("network.client_cloud_mbps", client_cloud_mbps, at_least(0.0),
              "megabits per second between a client and the cloud; 0: no limit");
  options.add("network.latency_ms", latency_ms, at_least(0.0),
              "milliseconds that every payload takes beside its transmission");
  options.add(
      "network.step_seconds", step_seconds, at_least(0.0),
      "seconds that a simulated client takes for the gradient of one batch; a local step of "
      "pfedme, tdpfed, sfedhp, perfedavg or apfl takes several");
}

NetworkModel::NetworkModel(const NetworkOptions& options)
    : latency_(options.latency_ms / 1e3), step_seconds_(options.step_seconds) {
  const std::array<std::pair<Link, double>, Ledger::kLinks> bandwidths{
      {{Link::ClientEdge, options.client_edge_mbps},
       {Link::EdgeCloud, options.edge_cloud_mbps},
       {Link::ClientCloud, options.client_cloud_mbps}}};
  on_ = latency_ > 0 || step_seconds_ > 0;
  for (const auto& [link, mbps] : bandwidths) {
    seconds_per_byte_[static_cast<std::size_t>(link)] = mbps > 0 ? 8 / (mbps * 1e6) : 0;
    on_ = on_ || mbps > 0;
  }
}

double NetworkModel::payload_seconds(Link link, std::int64_t bytes) const {
  require(bytes >= 0, "a payload has no negative size");
  return latency_ + static_cast<double>(bytes) * seconds_per_byte_[static_cast<std::size_t>(link)];
}

double NetworkModel::local_seconds(std::int64_t gradients) const {
  require(gradients >= 0, "there is no negative number of gradients");
  return static_cast<double>(gradients) * step_seconds_;
}

RoundClock::RoundClock(const NetworkModel& model, std::int64_t num_clients, std::int64_t num_edges)
    : model_(model) {
  if (!model.on()) return;
  times_.clients.resize(static_cast<std::size_t>(num_clients));
  times_.edges.resize(static_cast<std::size_t>(num_edges));
}

void RoundClock::go_on_from(const Times& times) {
  require(
      times.clients.size() == times_.clients.size() && times.edges.size() == times_.edges.size(),
      "a clock of the same clients and edges");
  times_ = times;
}

void RoundClock::transfer(Link link, std::int64_t client, std::int64_t bytes) {
  require(link != Link::EdgeCloud, "a client has no line between edge and cloud");
  if (!model_.on()) return;
  entry(times_.clients, client) += model_.payload_seconds(link, bytes);
  times_.edge_round_open = true;
}

void RoundClock::gradients(std::int64_t client, std::int64_t count) {
  if (!model_.on()) return;
  entry(times_.clients, client) += model_.local_seconds(count);
  times_.edge_round_open = true;
}

void RoundClock::edge_transfer(std::int64_t edge, std::int64_t bytes) {
  if (!model_.on()) return;
  entry(times_.edges, edge) += model_.payload_seconds(Link::EdgeCloud, bytes);
}

void RoundClock::cover(std::int64_t num_clients) {
  if (!model_.on()) return;
  require(!times_.edge_round_open, "clients change between edge rounds");
  times_.clients.assign(static_cast<std::size_t>(num_clients), 0);
}

void RoundClock::finish_edge_round() {
  if (!model_.on()) return;
  times_.slowest.push_back(largest(times_.clients));
  std::fill(times_.clients.begin(), times_.clients.end(), 0.0);
  times_.edge_round_open = false;
}

double RoundClock::seconds(Communicator& comm) const {
  if (!model_.on()) return std::numeric_limits<double>::quiet_NaN();
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
