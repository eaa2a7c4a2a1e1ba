#include "comm/staged_communicator.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

void StagedCommunicator::copy_(const Tensor& to, const Tensor& from) {
  const GpuLibrary::Stream stream = library_.tensor_stream();
  library_.copy(to.data_ptr(), from.const_data_ptr(), from.nbytes(), stream);
  library_.finish(stream);
}

Tensor StagedCommunicator::to_host(const Tensor& values) {
  require(values.is_contiguous(), "a collective takes contiguous tensors");
  Tensor staged = library_.pinned(values.sizes(), values.scalar_type());
  copy_(staged, values);
  return staged;
}

Tensor StagedCommunicator::to_device(const Tensor& staged, const Tensor& like) {
  const Tensor values = at::empty(staged.sizes(), like.options());
  copy_(values, staged);
  return values;
}

void StagedCommunicator::replace_(Tensor& values, const std::function<void(Tensor&)>& collective) {
  if (!library_.holds(values)) return collective(values);
  count(values);
  Tensor staged = to_host(values);
  collective(staged);
  copy_(values, staged);
}

void StagedCommunicator::sum_(Tensor& values) {
  replace_(values, [this](Tensor& staged) { host_->sum_(staged); });
}

void StagedCommunicator::max_(Tensor& values) {
  replace_(values, [this](Tensor& staged) { host_->max_(staged); });
}

void StagedCommunicator::broadcast_(Tensor& values, int root) {
  replace_(values, [this, root](Tensor& staged) { host_->broadcast_(staged, root); });
}

Tensor StagedCommunicator::gather(const Tensor& rows, int root) {
  if (!library_.holds(rows)) return host_->gather(rows, root);
  count(rows);
  return to_device(host_->gather(to_host(rows), root), rows);
}

Tensor StagedCommunicator::all_gather(const Tensor& rows) {
  if (!library_.holds(rows)) return host_->all_gather(rows);
  count(rows);
  return to_device(host_->all_gather(to_host(rows)), rows);
}

std::vector<Tensor> StagedCommunicator::all_to_all(const std::vector<Tensor>& parts) {
  require(static_cast<int>(parts.size()) == size(), "all_to_all takes one part per rank");
  if (!library_.holds(parts.front())) return host_->all_to_all(parts);
  count(parts);
  std::vector<Tensor> staged;
  for (const Tensor& part : parts) staged.push_back(to_host(part));
  std::vector<Tensor> received;
  for (const Tensor& part : host_->all_to_all(staged)) {
    received.push_back(to_device(part, parts[received.size()]));
  }
  return received;
}

std::unique_ptr<Communicator> StagedCommunicator::split(int colour) {
  std::unique_ptr<Communicator> part = host_->split(colour);
  if (!part) return nullptr;
  return std::make_unique<StagedCommunicator>(std::move(part), library_);
}

}  // namespace fedhpc
