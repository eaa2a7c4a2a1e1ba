#include "fedhpc/rounds/round_state.hpp"

#include <stdexcept>

namespace fedhpc {

RoundState::RoundState(RoundServices& rank, std::int64_t t, Cohort drawn, Evaluated scored,
                       std::unique_ptr<PartialRound> from)
    : services(rank),
      number(t),
      cohort(std::move(drawn)),
      evaluated(scored),
      wire(services.books.ledger, services.network, services.shard,
           services.topology.placement().edges(), services.buffers,
           {.seed = services.context.seed, .round = t, .edge_round = &edge_round}, services.links),
      log(services.leaving, std::move(from),
          {.save = [this](PartialRound& partial) { save(partial); },
           .restore = [this](const PartialRound& partial) { restore(partial); }}) {}

void RoundState::save(PartialRound& partial) const {
  partial.ledger = wire.ledger();
  partial.times = wire.clock().times();
  partial.statistics = statistics;
  partial.notes = notes.parts();
}

void RoundState::restore(const PartialRound& partial) {
  wire.ledger() = partial.ledger;
  wire.clock().go_on_from(partial.times);
  statistics = partial.statistics;
  notes.go_on_from(partial.notes);
}

double RoundState::weight_of(std::int64_t client, Weighting weighting) const {
  const std::int64_t samples = services.partition.train.count(client);
  switch (weighting) {
    case Weighting::Samples:
      return static_cast<double>(samples);
    case Weighting::Batches:
      return static_cast<double>(services.trainer.batches_of(samples));
    case Weighting::Uniform:
      return samples > 0 ? 1 : 0;
  }
  throw std::logic_error("a weighting has a weight");
}

MeanServices RoundState::mean_services(const LayoutPtr& layout) {
  return {.topology = services.topology,
          .layout = layout ? layout : services.model.layout(),
          .context = services.context,
          .watch = services.books.aggregate_watch,
          .log = &log};
}

double RoundState::simulated_seconds() {
  if (cohort.edges.empty()) wire.clock().finish_edge_round();
  return wire.clock().seconds(services.topology.world());
}

}  // namespace fedhpc
