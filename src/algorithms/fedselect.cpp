#include "fedhpc/algorithms/fedselect.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/algorithms/weighting.hpp"
#include "fedhpc/codecs/compressors.hpp"
#include "fedhpc/models/row_measures.hpp"

namespace fedhpc {

namespace {

constexpr const char* kPersonalShare = "personal_share";

/// What may become personal: weights, a norm's scale among them.
bool is_selectable(const Field& field) {
  return has(field.tags, Tag::Trainable) && !has(field.tags, Tag::Bias);
}

/// The columns where a mask [1, P] is not 0.
ColumnRanges ranges_of(const Rows& mask) {
  const Tensor numbers = float64_values(mask);
  const std::span<const double> row(numbers.const_data_ptr<double>(),
                                    static_cast<std::size_t>(numbers.size(1)));
  ColumnRanges ranges;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] == 0) continue;
    const auto column = static_cast<std::int64_t>(i);
    if (i > 0 && row[i - 1] != 0) {
      ranges.back().last = column + 1;
    } else {
      ranges.push_back({column, column + 1});
    }
  }
  return ranges;
}

/// For each client, columns as they are but for those of its mask in `masks` [C, P], which do not
/// travel: 0 arrives there.
std::vector<std::unique_ptr<Codec>> codecs_of(const Rows& masks) {
  std::vector<std::unique_ptr<Codec>> codecs;
  for (std::int64_t c = 0; c < masks.count(); ++c) {
    codecs.push_back(make_largest_codec(ranges_of(masks.narrow(c)), 0));
  }
  return codecs;
}

/// What send(block of one client, its place) gives for each client, [C, P].
template <typename Send>
Rows each_client(Block& block, const Send& send) {
  std::vector<Tensor> rows;
  LayoutPtr layout;
  for (std::int64_t c = 0; c < block.count(); ++c) {
    Block one = block.only(block.clients().subspan(static_cast<std::size_t>(c), 1));
    const Rows row = send(one, c);
    rows.push_back(row.values);
    layout = row.layout;
  }
  return {at::cat(rows), layout};
}

std::int64_t share_of(double share, std::int64_t columns) {
  return static_cast<std::int64_t>(std::floor(share * static_cast<double>(columns) + 0.5));
}

/// Sets `mask` to 1 in the `chosen` columns, of those where it is 0, in which the magnitude is
/// largest, the first of equal ones. Precondition: there are so many.
void take_largest_(std::span<double> mask, std::span<const double> change, std::int64_t chosen) {
  const auto magnitude = [&](std::size_t i) {  // its bits: NaN has a place in their order
    return std::bit_cast<std::uint64_t>(std::abs(change[i]));
  };
  std::vector<std::size_t> shared;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) shared.push_back(i);
  }
  const auto end = shared.begin() + chosen;
  std::nth_element(shared.begin(), end, shared.end(), [&](std::size_t i, std::size_t j) {
    return magnitude(i) != magnitude(j) ? magnitude(i) > magnitude(j) : i < j;
  });
  std::for_each(shared.begin(), end, [&](std::size_t i) { mask[i] = 1; });
}

}  // namespace

void FedSelect::declare(OptionSet& options) {
  const Condition selects = unless("algorithm.select_limit", "0");
  const Condition some = unless("algorithm.select_rate", "0");
  options
      .add("algorithm.select_rate", rate_, between(0.0, 1.0),
           "share of a tensor's shared columns that becomes personal at a selection (p)")
      .acts(selects);
  options.add("algorithm.select_limit", limit_, between(0.0, 1.0),
              "share of a tensor that becomes personal at most (alpha); 0: nothing does");
  options
      .add("algorithm.select_every", every_, count_from(1),
           "trainings of a client from one selection to the next")
      .acts(selects)
      .acts(some);
  options
      .add("algorithm.personal_passes", personal_passes_, count_from(0),
           "local trainings of a client's personal columns before the one of its shared ones")
      .acts(selects)
      .acts(some);
  options.add("algorithm.alternations", alternations_, count_from(1),
              "how often a round goes through those trainings");
  declare_weighting(options, weighting_);
  options.add_check([](const OptionSet& given) {
    given.refuse_unless_default(
        "train.buffers", "algorithm.name = fedselect, whose payloads hold all shared columns");
  });
}

void FedSelect::initialise(const Setup& setup) {
  setup.add_metrics({{kPersonalShare, "1",
                      "mean over participants of the share of trainable columns that is personal "
                      "after the round"}});
  global_ = setup.initial_model();
  personal_ = &setup.store().rows("personal", global_);
  masks_ = &setup.store().rows("mask", {at::zeros_like(global_.values), global_.layout});
  turns_ = &setup.store().scalars("turns", 0);
  trainable_ = RowPart(global_.layout, {.with = Tag::Trainable});
  bits_ = make_sign_codec({{0, trainable_.layout()->size()}});
  optimizer_ = std::make_unique<RowOptimizer>(setup.training().step_rule(), global_.layout);
}

void FedSelect::round(Round& round) {
  ColumnMean update = round.column_mean();
  round.each_block([&](Block& block) {
    const Rows masks = masks_->read(block.clients());         // [C, P]  m_k
    std::vector<std::int64_t> counts = count_nonzero(masks);  // [C]
    const Tensor personal = masks.values.ne(0);
    const std::vector<std::unique_ptr<Codec>> codecs = codecs_of(masks);
    const Rows received = each_client(block, [&](Block& one, std::int64_t c) {
      return one.download(global_, *codecs[static_cast<std::size_t>(c)]);
    });
    // (1 - m_k) theta_g + m_k v_k
    const Rows start = joined(personal, block.clients(), received);
    const Rows trained = local_alt(block, start, personal, counts);  // [C, P]
    const Rows change = trained - start;
    const Rows arrived = each_client(block, [&](Block& one, std::int64_t c) {
      return one.upload(change.narrow(c), *codecs[static_cast<std::size_t>(c)]);
    });
    update.add(block.weights(weighting_), arrived, personal.logical_not());
    block.keep(*personal_, trained);  // v_k
    grad_select(block, masks, change, counts);
    note(block, counts);
  });
  // theta_g <- theta_g + sum_k p_k (1 - m_k) (theta_k - theta_g) / sum_k p_k (1 - m_k)
  global_ += update.reduce({at::zeros_like(global_.values), global_.layout});
}

Rows FedSelect::joined(const Tensor& personal, std::span<const std::int64_t> clients,
                       const Rows& global) const {
  return {at::where(personal, personal_->read(clients).values, global.values), global.layout};
}

Rows FedSelect::local_alt(Block& block, const Rows& start, const Tensor& personal,
                          const std::vector<std::int64_t>& counts) const {
  const Rows model = start.clone();
  const Rows shared{personal.logical_not(), start.layout};
  std::vector<std::int64_t> places;  // of clients with something personal
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) places.push_back(static_cast<std::int64_t>(c));
  }
  const std::vector<std::int64_t> clients = block.clients_at(places);
  for (std::int64_t a = 0; a < alternations_; ++a) {
    const std::int64_t pass = a * (1 + personal_passes_);
    for (std::int64_t n = 1; n <= personal_passes_ && !places.empty(); ++n) {
      Block some = block.only(clients);
      const Rows part = model.at(places);
      train_(some, part, shared.at(places).values, pass + n);
      model.put_(places, part);
    }
    train_(block, model, personal, pass);
  }
  return model;
}

void FedSelect::train_(Block& block, const Rows& model, const Tensor& frozen,
                       std::int64_t pass) const {
  const Tensor before = model.values.clone();
  optimizer_->reset(model.values);
  block.each_step(
      Steps::Alike,
      [&](LocalStep& step) {
        step.descend_(model, *optimizer_);
        model.values.copy_(at::where(frozen, before, model.values));
      },
      pass);
}

void FedSelect::grad_select(Block& block, const Rows& masks, const Rows& change,
                            std::vector<std::int64_t>& counts) const {
  for (const std::int64_t place : take_turns(block)) {
    const auto c = static_cast<std::size_t>(place);
    const Tensor mask = float64_values(masks.narrow(place)).clone();  // [1, P]
    const std::int64_t selected = select_(mask, float64_values(change.narrow(place)));
    if (selected == 0) continue;
    counts[c] += selected;
    const std::span<const std::int64_t> client = block.clients().subspan(c, 1);
    const Rows next{beside(masks, mask), masks.layout};
    const Rows bits = trainable_.of(next);
    block.only(client).upload({bits.values.mul(2).sub(1), bits.layout}, *bits_);
    masks_->write(client, next);
  }
}

std::vector<std::int64_t> FedSelect::take_turns(Block& block) const {
  std::vector<double> turns = turns_->read(block.clients());
  std::vector<std::int64_t> places;
  for (std::size_t c = 0; c < turns.size(); ++c) {
    if (!block.trains(block.clients()[c])) continue;
    turns[c] += 1;
    if (std::fmod(turns[c], static_cast<double>(every_)) == 0) {
      places.push_back(static_cast<std::int64_t>(c));
    }
  }
  turns_->write(block.clients(), turns);
  return places;
}

std::int64_t FedSelect::select_(const Tensor& mask, const Tensor& change) const {
  std::int64_t selected = 0;
  for (const Field& field : global_.layout->fields()) {
    if (!is_selectable(field)) continue;
    const auto size = static_cast<std::size_t>(field.size);
    const std::span<double> of_tensor(mask.data_ptr<double>() + field.offset, size);
    const std::int64_t personal = std::count(of_tensor.begin(), of_tensor.end(), 1.0);
    const std::int64_t room = std::max<std::int64_t>(share_of(limit_, field.size) - personal, 0);
    const std::int64_t chosen = std::min(room, share_of(rate_, field.size - personal));
    take_largest_(of_tensor, {change.const_data_ptr<double>() + field.offset, size}, chosen);
    selected += chosen;
  }
  return selected;
}

void FedSelect::note(Block& block, const std::vector<std::int64_t>& counts) const {
  const auto all = static_cast<double>(global_.layout->count(Tag::Trainable));
  std::vector<double> shares;
  for (const std::int64_t count : counts) shares.push_back(static_cast<double>(count) / all);
  block.note(kPersonalShare, shares);
}

void FedSelect::evaluate(Evaluation& evaluation) {
  evaluation.global(global_);
  evaluation.each_block([&](EvaluationBlock& block) {
    const Tensor personal = masks_->read(block.clients()).values.ne(0);
    block.evaluate(joined(personal, block.clients(), global_));
  });
}

void FedSelect::visit_state(StateVisitor& state) { state.rows("global", global_); }

}  // namespace fedhpc
