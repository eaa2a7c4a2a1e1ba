#include "fedhpc/rounds/link_memory.hpp"

#include <string>

#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr std::uint32_t kPassesOfChannel = 8;

/// The name of a channel's rows: that of the first has no number.
std::string name_of(const char* rows, std::int64_t channel) {
  return channel == 0 ? rows : concat(rows, "_", channel);
}

}  // namespace

std::uint64_t LinkDraws::of(Direction direction, std::int64_t end, std::int64_t channel) const {
  Draws draws({.seed = seed,
               .purpose = Purpose::Codec,
               .pass = (direction == Direction::Up ? 2U : 3U) +
                       kPassesOfChannel * static_cast<std::uint32_t>(channel),
               .epoch = edge_round == nullptr ? 0 : static_cast<std::uint64_t>(*edge_round),
               .client = static_cast<std::uint64_t>(end),
               .round = static_cast<std::uint64_t>(round)});
  return draws.raw();
}

std::uint64_t LinkDraws::of_step(std::int64_t step, std::int64_t client) const {
  Draws draws({.seed = seed,
               .purpose = Purpose::Codec,
               .pass = 4,
               .epoch = static_cast<std::uint64_t>(step),
               .client = static_cast<std::uint64_t>(client),
               .round = static_cast<std::uint64_t>(round)});
  return draws.raw();
}

StoredRows& LinkMemory::uploads(std::int64_t channel) {
  return store_.rows(name_of("upload_feedback", channel));
}

StoredRows& LinkMemory::downloads(std::int64_t channel) {
  return store_.rows(name_of("downlink", channel));
}

void LinkMemory::open(Payload payload, Range edges, std::int64_t channel) {
  require(channel == 0 || edges.size() == 0, "edges have one payload a round");
  if (!channels_.insert(channel).second) {
    throw ConfigError(concat("the method opens two payloads on channel ", channel,
                             "; it has to give each a channel of its own"));
  }
  const Rows& model = payload.model;
  if (model.layout->size() == 0) return;  // nothing travels
  if (payload.feedback != ErrorFeedback::None) {
    const Rows known =
        payload.models_up ? model.clone() : Rows{at::zeros_like(model.values), model.layout};
    store_.rows(name_of("upload_feedback", channel), known);
    if (edges.size() > 0) edge_uploads_ = EdgeRows{known.replicate(edges.size()), edges.first};
  }
  if (payload.downlink == nullptr) return;
  downlink_ = std::move(payload.downlink);
  if (downlink_->lossless(model.values.scalar_type())) return;
  store_.rows(name_of("downlink", channel),
              model.clone());  // the method goes on from the same memory
  if (edges.size() > 0) edge_downloads_ = EdgeRows{model.replicate(edges.size()), edges.first};
}

void LinkMemory::visit_state(StateVisitor& state) {
  if (edge_uploads_) state.edges("upload_feedback_of_edges", *edge_uploads_);
  if (edge_downloads_) state.edges("downlink_of_edges", *edge_downloads_);
}

}  // namespace fedhpc
