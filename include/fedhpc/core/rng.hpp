#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fedhpc {

/// The purpose of a draw: the second word of the generator's key (docs/semantics.md, 1).
enum class Purpose : std::uint64_t {
  Init = 1,
  Partition = 2,
  Split = 3,
  Cohort = 4,
  Batches = 5,
  Evaluate = 6,
  Factors = 7,
  Codec = 8,
  Augment = 9,
  Generator = 10,
  Features = 11,  ///< random features and projections of samples (math/distribution_distance)
  Validation = 12,
  Gibbs = 13,       ///< chains of Gaussian-process classifiers (math/gp_tree), and their scores
  Binarise = 14,    ///< signs of updates that are right in expectation
  Layers = 15,      ///< what layers draw when training: dropout
  Stragglers = 16,  ///< who is late in a round
  Privacy = 17,     ///< noise of the server's sums
};

/// Names one sequence of draws. Two equal keys give the same numbers on any rank, at any time.
struct DrawKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::Init;
  std::uint64_t pass = 0;    ///< below 2^32
  std::uint64_t epoch = 0;   ///< below 2^32
  std::uint64_t client = 0;  ///< client, or parameter index, class, sample
  std::uint64_t round = 0;   ///< 0 before the first round; rounds count from 1
};

/// Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): returns
/// the block of four words at `counter` under `key`.
std::array<std::uint64_t, 4> philox4x64(std::array<std::uint64_t, 4> counter,
                                        std::array<std::uint64_t, 2> key);

/// Gives the draws of one key, in order. They are the words of
/// numpy.random.Philox(key=[seed, purpose], counter=[0, pass<<32|epoch, client,
/// round]).random_raw().
class Draws {
 public:
  explicit Draws(const DrawKey& key);

  std::uint64_t raw();
  /// The next words; many at a time cost less.
  void raw(std::span<std::uint64_t> words);
  /// Draws a uniform number in [0, 1): (raw >> 11) * 2^-53.
  double uniform();
  /// Draws a standard normal by Box-Muller: of two uniforms u, v first sqrt(-2 ln(1-u))
  /// cos(2 pi v), at the next call sqrt(-2 ln(1-u)) sin(2 pi v).
  double normal();
  /// Draws a gamma with shape `alpha` > 0 and scale 1 (Marsaglia and Tsang 2000, boosted below 1).
  double gamma(double alpha);
  /// Draws the logarithm of the same, also where it is below the least number.
  double log_gamma(double alpha);
  /// Draws a uniform integer in [0, n): floor(uniform * n); n > 0.
  std::int64_t below(std::int64_t n);

 private:
  std::array<std::uint64_t, 2> key_;
  std::array<std::uint64_t, 4> counter_;
  std::array<std::uint64_t, 4> words_{};
  int used_ = 4;
  double spare_normal_ = 0;
  bool has_spare_normal_ = false;
};

/// Returns the first `length` entries of a permutation of 0..n-1: stable argsort of n raw words.
/// Costs O(n) on average. 0 <= length <= n.
std::vector<std::int64_t> permutation_prefix(const DrawKey& key, std::int64_t n,
                                             std::int64_t length);

/// Returns for each of 0..n-1 whether it is among the first `count` of the permutation: 1 or 0, [n]. Cheaper than the
/// prefix, which has an order. 0 <= count <= n.
std::vector<std::uint8_t> random_subset(const DrawKey& key, std::int64_t n, std::int64_t count);

/// Returns the whole permutation of 0..n-1.
std::vector<std::int64_t> permutation(const DrawKey& key, std::int64_t n);

}  // namespace fedhpc
