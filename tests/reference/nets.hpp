#pragma once

#include <string>
#include <vector>

#include "fedhpc/models/model.hpp"

namespace fedhpc::testing {

/// Logits [B, K] of a family for one client, by ATen's operators on the fields of `row` [P], so
/// that autograd can follow. Batch norm uses the batch's statistics when training, else the running
/// ones. Training moves those of `moved` [P], a row of its own, if it is given. Written from the
/// papers' layer tables.
Tensor reference_logits(const ModelOptions& options, const Layout& layout, const Tensor& row,
                        const Tensor& samples,  // [B, channels, height, width] or [B, D]
                        Use use, const Tensor& moved = {});

/// The families that reference_logits knows: all but model files and those that always draw.
std::vector<std::string> families_with_reference();

}  // namespace fedhpc::testing
