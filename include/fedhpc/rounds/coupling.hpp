#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

class NetworkLasso;
struct NetworkLassoReport;
enum class PairTerm;
enum class MixTerm;

/// The place of a client among some that ascend. It must be one of them.
std::int64_t place_of(std::int64_t client, std::span<const std::int64_t> clients);

/// Computes algebra between the clients of all ranks. Every rank has the rows of its own clients.
/// Others' rows travel in slabs: some columns of all clients at a time, never all of them. So no
/// rank holds more than kSlabBytes of other ranks' rows (and never N x P). Sums are taken in
/// float64: over clients in ascending order, over columns in an order that the columns alone fix.
/// Results have the same bits on any number of ranks, whichever rank has which client.
///
/// All calls are collective. Rows have one layout and type on all ranks, in the order of the ids
/// given at the start; a rank may have none. Rows on a device are worked on there and give rows
/// there, and so are columns of all clients. Numbers of pairs of clients are always in host memory.
class Coupling {
 public:
  /// The bytes a slab of columns takes at most, unless one tile of columns is more.
  static constexpr std::int64_t kSlabBytes = std::int64_t{16} << 20;

  /// `ids`: the clients of this rank's rows, in their order. No client is on two ranks.
  Coupling(Communicator& comm, std::span<const std::int64_t> ids);

  const std::vector<std::int64_t>& ids() const { return ids_; }  ///< of all ranks, ascending: [N]
  std::int64_t count() const { return static_cast<std::int64_t>(ids_.size()); }  ///< N

  std::int64_t most(std::int64_t own) const;   ///< The largest of all ranks' numbers.
  std::int64_t total(std::int64_t own) const;  ///< Their sum.

  /// Gathers one entry per client, [N_r, ...] of any type in the order of this rank's clients, to
  /// every rank: [N, ...], ascending.
  Tensor all_rows(const Tensor& rows) const { return in_client_order(comm_.all_gather(rows)); }

  /// ||a_i - b_j||^2 over `columns` for all clients i and j in ascending order, [N, N] float64 on
  /// every rank. Differences are taken before they are squared, so nothing cancels however near the
  /// rows are. Costs N N_r Q subtractions and products on a rank with N_r clients. The columns of b
  /// travel to every rank.
  Tensor squared_distances(const Rows& a, const Rows& b, const ColumnRanges& columns) const;

  /// <a_i - reference, b_j - reference> over `columns`, as squared_distances. `reference` is a row
  /// [1, P] equal on all ranks; without one, <a_i, b_j>.
  Tensor dots(const Rows& a, const Rows& b, const ColumnRanges& columns,
              const Rows& reference = {}) const;

  /// The cosine of a_i - reference and a_j - reference, as dots; 0 where one of them is 0.
  Tensor cosines(const Rows& a, const ColumnRanges& columns, const Rows& reference = {}) const;

  /// out_i = sum_j coefficients_ij rows_j for this rank's clients i, [N_r, P] in the type of
  /// `rows`, rounded once. `coefficients` is [N, N] float64, clients ascending; only the rows of
  /// this rank's clients are read. A coefficient of 0 adds nothing even where a row holds NaN.
  Rows mix(const Tensor& coefficients, const Rows& rows) const;

  /// out_i = rows_i + sum_j shares_ij (rows_j - rows_i), as mix: the coefficients sum to 1, and
  /// client i itself gets what the others leave. Differences are taken first. Equal rows therefore
  /// stay as they are, to the last bit, and so does a client whose shares are 0.
  Rows approach(const Tensor& shares, const Rows& rows) const;

  /// Transposes the rows [N_r, P] over ranks: this rank gets own_columns(P, multiple) of all
  /// clients, [N, w], clients ascending. Between the two transposes a rank may talk to the others.
  Tensor to_columns(const Rows& rows, std::int64_t multiple = 1) const;
  /// Puts columns [N, w] from to_columns back into the clients' rows.
  void from_columns_(const Rows& rows, const Tensor& columns, std::int64_t multiple = 1) const;

  /// The columns [begin, end) of P that this rank gets, `begin` a multiple of that number.
  Range own_columns(std::int64_t columns, std::int64_t multiple = 1) const;

  /// Solves on columns of all clients, as to_columns(rows, NetworkLasso::kStripe) gives them.
  NetworkLassoReport solve_(NetworkLasso& lasso, const Tensor& columns, const Tensor& target,
                            double eta) const;

  /// value(a_i, a_j) for all clients i and j, [N, N] float64 on every rank. This rank gives one
  /// matrix [n_i, columns] float64 per client, in their order. `value` must be symmetric: it is
  /// asked for i <= j alone. One client's matrix at a time travels to all ranks.
  Tensor over_pairs(
      const std::vector<Tensor>& matrices, std::int64_t columns,
      const std::function<double(const Tensor& of_i, const Tensor& of_j)>& value) const;

 private:
  using UseSlab = std::function<void(const Tensor& slab, std::int64_t first)>;

  std::span<const std::int64_t> own_positions() const;  // of this rank's clients, in ids_
  void check(const Rows& rows) const;
  void each_slab(const Tensor& rows, const ColumnRanges& columns, const UseSlab& use) const;
  Tensor sum_over_pairs(PairTerm term, const Rows& a, const Rows& b, const ColumnRanges& columns,
                        const Rows& reference) const;
  Rows combine(MixTerm term, const Tensor& coefficients, const Rows& rows) const;
  Tensor in_client_order(const Tensor& gathered) const;
  /// `centre`: undefined, or the reference's columns.
  Tensor pairs_on_device(PairTerm term, const Rows& a, const Rows& b, const ColumnRanges& columns,
                         const Tensor& centre) const;
  Rows combine_on_device(MixTerm term, const Tensor& coefficients, const Rows& rows) const;

  Communicator& comm_;
  std::vector<std::int64_t> ids_;        // [N], ascending
  std::vector<std::int64_t> counts_;     // clients of every rank
  std::vector<std::int64_t> positions_;  // [N], in ids_, of the clients in the order of ranks
};

/// Independent work of the cloud server, spread over the ranks: work(0) to work(n - 1), each once
/// on some rank; all results in order, on every rank, in host memory. They are contiguous tensors of
/// one type and any shapes. Collective. Throws Error for several types.
std::vector<Tensor> on_server(Communicator& comm, std::int64_t n,
                              const std::function<Tensor(std::int64_t)>& work);

}  // namespace fedhpc
