#pragma once

#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "standin/costs.hpp"

namespace fedhpc::standin {

/// What an operator of LibTorch moves and computes: its tensors once, those that it changes twice.
/// Nothing of one that only views its argument.
std::optional<Cost> cost_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                            const torch::jit::Stack& results);

/// The uninitialised results of operators of which LibTorch tells no shapes: convolutions, layer
/// norms, their gradients (without those of a norm's parameters), a choice. Empty for any other.
torch::jit::Stack uncomputed(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace fedhpc::standin
