#pragma once

#include <string>
#include <vector>

#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/factorisations/options.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// "fc1" of "fc1.weight".
std::string layer_of(const Field& field);

/// Returns the weights that are factorised, in the order of the row. Throws ConfigError for a layer
/// in model.exclude that the model does not have, and if none is left.
std::vector<const Field*> factorised_fields(const FactorisationOptions& options,
                                            const Layout& layout);

/// Returns the size of each field's factors: model.rank, or a compression rate. The rate gives each
/// layer (model.compression_scope = layer) or the whole model the compression asked for. Throws
/// ConfigError for another number of ranks than fields, and for a model whose other columns alone
/// are too many.
std::vector<FactorSize> factor_sizes(const FactorisationOptions& options,
                                     const std::vector<const Field*>& fields, const Layout& layout);

}  // namespace fedhpc
