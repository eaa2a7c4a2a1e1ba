#include <ATen/TensorOperators.h>

#include "fedhpc/algorithms/pfedsop.hpp"
#include "fedhpc/core/device.hpp"
#include "fedhpc/math/row_products.hpp"
#include "fedhpc/rounds/to_device.hpp"

namespace fedhpc {

std::vector<Personalisation::Step> Personalisation::steps_on_device(const RowPart& part,
                                                                    const Rows& models,
                                                                    const Rows& own,
                                                                    const Rows& global,
                                                                    double square) const {
  const std::int64_t count = own.count();
  const Tensor of =
      on_host(row_products_on_device(own.values, global.values, {{0, own.values.size(1)}}));
  std::vector<Step> steps;
  std::vector<double> of_own;
  std::vector<double> of_global;
  for (std::int64_t c = 0; c < count; ++c) {
    const double* products = of.const_data_ptr<double>() + c;
    const Step step = step_along({products[0], products[count]}, square);
    of_own.push_back(-step.scale * (1 - step.beta));
    of_global.push_back(-step.scale * step.beta);
    steps.push_back(step);
  }
  const auto factors = [&](const std::vector<double>& values) {
    return to_device(values, own.values.device()).to(own.values.scalar_type()).unsqueeze(1);
  };
  const Rows moved{
      part.of(models).values + (own.values * factors(of_own) + global.values * factors(of_global)),
      part.layout()};
  part.put_(models, moved);
  return steps;
}

std::vector<Personalisation::Step> PFedSOP::personalise_on_device_(
    Block& block, std::span<const std::int64_t> places, const Rows& received, double square,
    const Rows& start) const {
  std::vector<std::int64_t> clients;
  for (const std::int64_t place : places) {
    clients.push_back(block.clients()[static_cast<std::size_t>(place)]);
  }
  const Tensor index = to_device(places, start.values.device());
  const Rows models = models_->read(clients);  // x_i(t-1)
  const Rows global{received.values.index_select(0, index), received.layout};
  const auto steps =
      personalisation_.steps_on_device(trainable_, models, updates_->read(clients), global, square);
  start.values.index_copy_(0, index, models.values);
  return steps;
}

}  // namespace fedhpc
