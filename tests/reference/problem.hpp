#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/core/tensor.hpp"
#include "fedhpc/models/model.hpp"

#include "fixtures/tiny_run.hpp"
#include "reference/optimizer.hpp"

/// Plain references of the algorithms: one client at a time, LibTorch's autograd in float64,
/// written from the papers' equations. They share with the simulator only the data, the partition,
/// the initial model and the generator's raw words.
namespace fedhpc::reference {

/// One client's training data.
struct Client {
  Tensor features;  // [n, D] float64
  Tensor labels;    // [n] int64
};

/// A network as its parameters, and running statistics where it has batch norm.
using Parameters = std::vector<Tensor>;

struct Problem {
  std::vector<Client> clients;
  std::vector<Client> tests;  // the same clients' test samples
  Parameters initial;
  ModelOptions model;
  LayoutPtr layout;                 // its fields are what the parameters are, one by one
  std::vector<std::int64_t> shape;  // of a sample
  std::uint64_t seed = 0;
  std::int64_t rounds = 0;
  double participation = 1;
  std::int64_t edges = 0;
  double edge_participation = 1;
  std::int64_t batch_size = 0;
  std::int64_t local_steps = 0;
  std::int64_t local_epochs = 0;
  std::vector<double> stragglers{};  ///< who is late with this probability, in turn
  bool stragglers_away = false;      ///< does not take part, or takes some of its steps
  double clip = 0;                   ///< length of what a client sends at most; 0: any
  double noise = 0;                  ///< deviation, over it, of the noise of a sum
  double lr = 0;
  OptimizerSettings optimizer;
  bool decay_biases = true;
  double lr_decay = 1;         ///< of every round, or
  bool lr_by_epoch = false;    ///< of every epoch
  std::int64_t trainings = 1;  ///< of a client in a round, one after the other, numbered as passes
  bool uniform = false;        ///< weigh clients equally instead of by their samples
  bool by_batches = false;     ///< or by the batches that an epoch of their samples has
};

/// The problem a configuration describes (data sets of float features, and pixels by
/// data.standardize = half).
Problem make_problem(const testing::Keys& keys);

/// The first max(1, floor(f n + 1/2)) of a stable argsort of n raw words, ascending.
std::vector<std::int64_t> drawn(const DrawKey& key, std::int64_t n, double fraction);

/// The clients drawn into a round, ascending.
std::vector<std::int64_t> cohort(const Problem& problem, std::int64_t round);

/// A round with noise in which not all take part: each client is drawn by itself.
struct DrawnEach {
  std::vector<std::int64_t> clients;
  bool stands_in = false;  ///< nobody with samples was drawn, and one stands in whose change is 0
  double times = 1;        ///< the mean over participants by this is the sum over those expected
};
bool draws_each(const Problem& problem);
DrawnEach drawn_each(const Problem& problem, std::int64_t round);

/// An edge drawn into a round and those of its clients that take part.
struct EdgeCohort {
  std::int64_t edge = 0;
  std::vector<std::int64_t> clients;
  std::size_t drawn = 0;  ///< those who are late included
};

/// Those of `clients` that take part: where late ones stay away, the others, or who is late last.
std::vector<std::int64_t> without_absent(const Problem& problem,
                                         const std::vector<std::int64_t>& clients,
                                         std::int64_t round);

/// Edges drawn with pass 1, then the clients of each with pass 0 and client = the edge; client c
/// belongs to edge floor(c E / N).
std::vector<EdgeCohort> edge_cohorts(const Problem& problem, std::int64_t round);

/// The positions of every local step's batch of client k in `round`. Batch norm cannot train on one
/// sample: such batches are left out. A client that is late has the first ones of them.
std::vector<std::vector<std::int64_t>> batches(const Problem& problem, std::int64_t k,
                                               std::int64_t round, std::int64_t pass,
                                               Purpose purpose = Purpose::Batches);

/// The same once through a share of client k's samples: the first max(1, floor(share n + 1/2)) of
/// its permutation, or a slice of max(1, floor(share n)) from a place drawn for the round.
std::vector<std::vector<std::int64_t>> batches_of_share(const Problem& problem, std::int64_t k,
                                                        std::int64_t round, std::int64_t pass,
                                                        double share, bool slice = false);

/// What client k's learning rate is multiplied with at a step of a round, pass `pass`.
double rate_of(const Problem& problem, std::int64_t k, std::int64_t round, std::int64_t pass,
               std::size_t step);

/// All parameters one after the other, [P].
Tensor flatten(const Parameters& parameters);

/// The reverse, in the shapes of `like`.
Parameters unflatten(const Tensor& flat, const Parameters& like);

}  // namespace fedhpc::reference
