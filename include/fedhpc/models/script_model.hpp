#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fedhpc/models/model.hpp"

namespace fedhpc {

/// Loads a TorchScript file (torch.jit.save) as a model for samples of `shape`.
/// LibTorch's autograd differentiates it, one client after the other, on the CPU: any module trains
/// whose output is [B, K], or [B, ..., K] for losses of sequences.
///
/// Parameters and floating buffers are the layout's fields in the module's order: parameters, then
/// buffers, then the modules inside. One that stands in several places is one field. Other buffers
/// (num_batches_tracked) stay as the file has them. The head is the last weight of two or more
/// dimensions with its bias. The initial weights are the file's.
///
/// The module is in train() mode for Use::Training and in eval() mode else. Before it trains,
/// LibTorch's CPU generator is seeded by the draws of the pass: what it draws depends on the client
/// and the call alone. Throws DataError for a file that is no such module.
std::unique_ptr<Model> load_script_model(const std::string& path, const Shape& shape);

}  // namespace fedhpc
