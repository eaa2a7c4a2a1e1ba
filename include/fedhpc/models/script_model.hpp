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
/// Parameters with requires_grad and the floating buffers that training moves are the layout's
/// fields in the module's order: parameters, then buffers, then the modules inside. One that stands
/// in several places is one field. All else stays as the file has it: frozen parameters, masks,
/// whole numbers (num_batches_tracked). The head is the last weight of two or more dimensions, no
/// norm's and no embedding's, with its bias. The initial weights are the file's.
///
/// The script is tried on samples of zeros, ones and sines by rows of `type`. A warning names a
/// parameter to which no gradient came.
///
/// The module is in train() mode for Use::Training and in eval() mode else. Before it trains,
/// LibTorch's CPU generator is seeded by the draws of the pass: what it draws depends on the client
/// and the call alone. Throws DataError for a file that is no such module.
std::unique_ptr<Model> load_script_model(const std::string& path, const Shape& shape,
                                         at::ScalarType type = at::kFloat);

}  // namespace fedhpc
