#include "reference/part_averaging_reference.hpp"

namespace fedhpc::reference {

namespace {

Parameters joined(const Parameters& common, const Parameters& mine,
                  const std::set<std::size_t>& own) {
  Parameters model = common;
  for (const std::size_t place : own) model[place] = mine[place];
  return model;
}

}  // namespace

PartOutcome part_averaging(const Problem& problem, const std::set<std::size_t>& own) {
  PartOutcome result;
  Parameters common = problem.initial;  // what it holds at `own` is never used
  result.personal.assign(problem.clients.size(), problem.initial);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Average next;
    RoundLoss loss;
    for (const std::int64_t k : cohort(problem, t)) {
      Parameters& mine = result.personal[static_cast<std::size_t>(k)];
      const Trained trained = train(problem, k, t, {}, joined(common, mine, own));
      mine = trained.parameters;
      loss.add(trained);
      next.add(mine, weight_of(problem, k));
    }
    common = next.mean_or(common);
    result.train_loss.push_back(loss.mean());
  }
  for (Parameters& mine : result.personal) mine = joined(common, mine, own);
  return result;
}

std::set<std::size_t> top_layers(const Problem& problem, std::int64_t layers) {
  std::set<std::size_t> places;
  for (std::size_t i = problem.initial.size(); i > 0 && layers > 0; --i) {
    places.insert(i - 1);
    if (problem.initial[i - 1].dim() > 1) --layers;
  }
  return places;
}

std::set<std::size_t> below_top_layers(const Problem& problem, std::int64_t layers) {
  const std::set<std::size_t> top = top_layers(problem, layers);
  std::set<std::size_t> places;
  for (std::size_t i = 0; i < problem.initial.size(); ++i) {
    if (!top.contains(i)) places.insert(i);
  }
  return places;
}

std::set<std::size_t> batch_norm(const Problem& problem) {
  std::set<std::size_t> places;
  for (std::size_t i = 0; i < problem.initial.size(); ++i) {
    if (problem.layout->fields()[i].name.starts_with("bn")) places.insert(i);
  }
  return places;
}

}  // namespace fedhpc::reference
