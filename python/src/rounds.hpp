#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/rounds/round.hpp"

#include "training.hpp"

namespace fedhpc::python {

/// Weightings as Python names them: samples, batches or uniform.
Weighting to_weighting(const std::string& name);

/// A loop over blocks that Python goes through, and the time of the block in its turn.
struct OpenBlocks {
  OpenBlocks(Round& round, bool absent)
      : blocks(absent ? round.absent_blocks() : round.blocks()),
        name(absent ? "round.absent_blocks()" : "round.blocks()") {}

  Blocks blocks;
  std::string name;
  TimePtr turn = std::make_shared<Time>("", /*over=*/true);
};

/// What a method's Python object has of the run, from its initialise() on: the times in which it
/// may use what the engine keeps for it, and the series it has declared.
struct MethodSession {
  TimePtr inside = std::make_shared<Time>(
      "what setup gave can be used only while the method runs, in the run that it is from");
  std::set<std::string> metrics;    // as they are noted
  std::set<std::string> quantiles;  // those with quantiles
  std::set<std::string> series;     // below /rounds
  ClientStore* store = nullptr;
  RunRows run = {};
};
using MethodSessionPtr = std::shared_ptr<MethodSession>;

/// A round in its time.
class RoundSession {
 public:
  RoundSession(Round& round, MethodSessionPtr method)
      : round_(round, time_of("this round is over: a round can be used only while the method's "
                              "round() or prepare() runs")),
        method_(std::move(method)) {}
  ~RoundSession() { end(); }

  Round& get() const { return *round_; }
  const TimePtr& time() const { return round_.time(); }
  const ClientStore& store() const {
    time()->check();  // the store is the run's
    return *method_->store;
  }
  /// Throws unless the method has declared the series.
  void require_metric(const std::string& verb, const std::string& metric) const;
  /// Notes that a series gets values of clients or edges (`parts`), or one of the round. Throws
  /// ValueError where it has the other in this round, or where the value has no place in it.
  void begin_note(const std::string& verb, const std::string& metric, bool parts);
  /// Throws where a loop over blocks has not come to its end.
  void require_no_loop(const std::string& verb) const;
  std::shared_ptr<OpenBlocks> open(bool absent);
  /// Throws where a loop over blocks was left.
  void require_not_left() const;
  /// Ends the round for Python.
  void end();
  /// Training, which is not entered a second time from its own steps.
  bool trains = false;
  /// Edge rounds, which are not begun a second time from one of them.
  bool in_edge_rounds = false;

 private:
  Held<Round> round_;
  MethodSessionPtr method_;
  std::shared_ptr<OpenBlocks> loop_;
  std::map<std::string, bool> noted_;  // of parts
};
using RoundSessionPtr = std::shared_ptr<RoundSession>;

struct PyRound {
  RoundSessionPtr session;
};
/// The edge servers of a round, and algebra between clients, as Python has them.
nb::object edges_of(const PyRound& round);
nb::object coupling_of(const PyRound& round, nb::handle ids);

/// Rows and numbers of clients, as Python has them.
struct PyStore {
  ClientStore* store;
  TimePtr time;
  TimePtr setup;  // of initialise(), which makes what the store has
};
struct PyStoredRows {
  StoredRows* rows;
  const ClientStore* store;
  TimePtr time;

  StoredRows& get() const {
    time->check();
    return *rows;
  }
};
struct PyScalars {
  ScalarColumn* column;
  const ClientStore* store;
  TimePtr time;

  ScalarColumn& get() const {
    time->check();
    return *column;
  }
};

}  // namespace fedhpc::python
