#include <algorithm>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/rounds/coupling.hpp"

namespace fedhpc {

namespace {

/// What the other ranks must know of a result before its numbers: type, dimensions, sizes.
constexpr std::int64_t kMostDimensions = 6;
constexpr std::int64_t kHeader = 2 + kMostDimensions;

void describe(const Tensor& result, std::int64_t* header) {
  require(result.is_contiguous() && result.dim() <= kMostDimensions,
          "work on the server gives contiguous tensors of at most six dimensions");
  *header++ = static_cast<std::int64_t>(result.scalar_type());
  *header++ = result.dim();
  std::copy(result.sizes().begin(), result.sizes().end(), header);
}

}  // namespace

std::vector<Tensor> on_server(Communicator& comm, std::int64_t n,
                              const std::function<Tensor(std::int64_t)>& work) {
  if (n == 0) return {};
  // Rank r works on r, r + ranks, r + 2 ranks, ...
  std::vector<Tensor> own;  // flat
  std::vector<std::int64_t> own_headers;
  for (std::int64_t i = comm.rank(); i < n; i += comm.size()) {
    const Tensor result = on_host(work(i));
    own_headers.resize(own_headers.size() + kHeader, 0);
    describe(result, own_headers.data() + own_headers.size() - kHeader);
    own.push_back(result.reshape({-1}));
    comm.progress();  // ranks with less to do wait
  }
  Tensor headers = at::empty({static_cast<std::int64_t>(own.size()), kHeader}, at::kLong);
  std::copy(own_headers.begin(), own_headers.end(), headers.data_ptr<std::int64_t>());
  headers = comm.all_gather(headers);
  const auto type = static_cast<at::ScalarType>(headers[0][0].item<std::int64_t>());
  if (!headers.select(1, 0).eq(headers[0][0]).all().item<bool>()) {
    throw Error("the work of on_server gives arrays of one type, and not of several");
  }
  const Tensor numbers = comm.all_gather(own.empty() ? at::empty({0}, type) : at::cat(own));

  std::vector<Tensor> results(static_cast<std::size_t>(n));
  std::int64_t row = 0;
  std::int64_t first = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (std::int64_t i = rank; i < n; i += comm.size()) {
      const auto* header = headers.const_data_ptr<std::int64_t>() + kHeader * row++;
      const at::IntArrayRef shape(header + 2, static_cast<std::size_t>(header[1]));
      std::int64_t size = 1;
      for (const std::int64_t length : shape) size *= length;
      results[static_cast<std::size_t>(i)] = numbers.narrow(0, first, size).reshape(shape);
      first += size;
    }
  }
  return results;
}

}  // namespace fedhpc
