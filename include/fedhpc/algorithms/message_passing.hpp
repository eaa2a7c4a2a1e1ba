#pragma once

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Attentive message passing, the round that FedAMP and HeurFedAMP share. For every participant i
///
///   u_i = (1 - sum_{j != i} xi_ij) w_i + sum_{j != i} xi_ij w_j    at the server, over all clients
///   w_i = argmin F_i(w) + lambda/2 ||w - u_i||^2                   at the client, from u_i
///
///   paper     code               meaning
///   w_i       models_            personal model of client i as the server has it
///   u_i       clouds             its personalized cloud model
///   xi_ij     Attention          weight of w_j in u_i
///
/// The server knows a model of every client from the start, the initial one. Clients that have not
/// been drawn yet, or have no training sample, count in the sums with that. All messages of a round
/// are formed before anyone trains. Batch-norm statistics are mixed like parameters.
class MessagePassing {
 public:
  /// The weights xi [N, N] float64 that the rows w_j [N_r, P] of all ranks' clients give each
  /// other. Clients are in ascending order; the diagonal says nothing.
  using Attention = std::function<Tensor(const Coupling& clients, const Rows& models)>;

  /// Declares algorithm.lambda and the keys of both links.
  void declare(OptionSet& options);
  void initialise(const Setup& setup);
  void round(Round& round, const Attention& attention);
  void evaluate(Evaluation& evaluation) const;

 private:
  Rows cloud_models(Round& round, const Attention& attention) const;  // [N_r, P]
  /// Picks the rows of some clients from rows of all of this rank.
  Rows of_clients(const Rows& rows, std::span<const std::int64_t> clients) const;

  double lambda_ = 1;
  LinkOptions links_;
  std::unique_ptr<Codec> codec_;       // of uploads
  std::vector<std::int64_t> clients_;  // of this rank, ascending
  StoredRows* models_ = nullptr;       // [N_r, P]
};

}  // namespace fedhpc
