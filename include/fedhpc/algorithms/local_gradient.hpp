#pragma once

#include <functional>
#include <string>

#include "fedhpc/algorithms/algorithm.hpp"

namespace fedhpc {

/// Sums each client's gradients along its local steps y_{r+1} = y_r - eta g(y_r). These are plain
/// gradient steps of rate train.lr = eta; they start from its row y of `start` [C, P]. Gradients
/// longer than `clip_norm` (train.clip_norm; 0: any) are shortened to it.
///
///   (y - y_R) / eta = sum_r g(y_r)
///
/// For one step this is the stochastic gradient g(y). The sum is taken over gradients, so that
/// nothing cancels. In batch-norm statistics it is (y - their new values) / eta: a step back along
/// it takes them over. 0 for a client that cannot train. Counts into train_loss.
Rows local_gradient(Block& block, const Rows& start, double eta, double clip_norm);

constexpr const char* kSumsAreSent =
    "whose clients send sums of gradients: (x^0 - x^T) / train.lr is one";

/// For what is a sum of gradients: adds a check that refuses rules other than plain gradient steps.
/// `why` is what holds for those alone; it is needed where `needed` says so, or always.
void require_plain_gradients(OptionSet& options, const std::string& name,
                             const std::string& why = kSumsAreSent,
                             std::function<bool()> needed = {});

}  // namespace fedhpc
