#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

enum class Feedback { None, Ef14, Ef21 };

struct LinkSettings {
  std::int64_t k;  ///< columns of an upload
  Feedback feedback = Feedback::None;
  std::int64_t k_down = 0;  ///< of a download; 0: all
  bool models = false;      ///< uploads are whole models, with ef21
};

/// What clients and server send each other of one thing, a vector: its k largest numbers, or those
/// of its difference to what the receiver has. Norms and running statistics arrive as they are.
class Link {
 public:
  /// `start`: what all know at the start.
  Link(const Problem& problem, const Tensor& start, const LinkSettings& settings);

  /// What client i has after the server has sent it w.
  Tensor down(std::int64_t i, const Tensor& w);
  /// What the server reads of x from client i.
  Tensor up(std::int64_t i, const Tensor& x);

 private:
  /// The k largest of what is compressed, and all else.
  Tensor largest(const Tensor& x, std::int64_t k) const;

  LinkSettings settings_;
  Tensor compressed_;  // columns
  std::vector<Tensor> known_;
  std::vector<Tensor> kept_;  // e or g
};

/// The same of models; without a link they travel whole.
Parameters received(Link* link, std::int64_t client, const Parameters& model);
Parameters read(Link* link, std::int64_t client, const Parameters& model);

}  // namespace fedhpc::reference
