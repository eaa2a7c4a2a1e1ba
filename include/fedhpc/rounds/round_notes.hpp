#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/rounds/weighted_sum.hpp"

namespace fedhpc {

/// Keeps what a round has noted on this rank of the method's own metrics.
class RoundNotes {
 public:
  /// Values of this rank's clients or edges, by metric.
  using Parts = std::map<std::string, std::vector<double>>;

  /// `series`: all that may be noted; null: anything may.
  explicit RoundNotes(const std::set<std::string>* series = nullptr) : series_(series) {}

  /// Throws Error, with the nearest name, for a metric that the method has not added.
  void require_added(const std::string& metric) const;

  /// Sets a metric to a value that is the same on every rank.
  void set(const std::string& metric, double value) {
    require_added(metric);
    values_[metric] = value;
  }
  /// Adds the value of a client or an edge of this rank.
  void add(const std::string& metric, double value) { parts_[metric].push_back(value); }

  /// Returns for each metric the value it was set to, or the mean over clients and edges; NaN where
  /// nothing was noted. The same on every rank. Collective.
  std::vector<double> means(const std::vector<std::string>& metrics, Topology& topology,
                            Summation summation) const;
  /// Returns a quantile over clients and edges of all ranks; NaN where nothing was noted. The same
  /// on every rank. Collective.
  double quantile(const std::string& metric, double fraction, Topology& topology) const;

  const Parts& parts() const { return parts_; }
  /// Goes on from what clients and edges had noted.
  void go_on_from(const Parts& parts) { parts_ = parts; }

 private:
  const std::set<std::string>* series_;
  std::map<std::string, double> values_;
  Parts parts_;
};

}  // namespace fedhpc
