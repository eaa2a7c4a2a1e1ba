#pragma once

#include <initializer_list>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// A stream of a device beside the current one: its work overlaps with work that is enqueued on the
/// current one afterwards.
class SideStream {
 public:
  explicit SideStream(at::Device device)
      : guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device)) {}

  /// Enqueues what `work` does behind what is on the current stream so far. The memory of the
  /// tensors it uses, which are that stream's, is kept from others until it is done.
  template <typename Work>
  void run(std::initializer_list<Tensor> used, const Work& work) {
    wait_for(/*waiting=*/stream_, /*other=*/current());
    for (const Tensor& tensor : used) tensor.record_stream(stream_);
    const c10::StreamGuard here(stream_);
    work();
  }

  /// Makes work enqueued on the current stream from now on wait for the work enqueued here.
  void join() { wait_for(/*waiting=*/current(), /*other=*/stream_); }

 private:
  c10::Stream current() const { return guard_.getStream(stream_.device()); }
  void wait_for(const c10::Stream& waiting, const c10::Stream& other) const {
    c10::Event passed(stream_.device_type());
    passed.record(other);
    passed.block(waiting);
  }

  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
};

}  // namespace fedhpc
