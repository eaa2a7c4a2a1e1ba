#include "fedhpc/algorithms/lora.hpp"

namespace fedhpc {

Traits LoRA::traits() const {
  Columns passed;
  if (rest_ == Rest::Head) passed.with = Tag::Head;
  if (rest_ == Rest::Frozen) passed.without = Tag::Trainable | Tag::Buffer;
  return {.factorisations = {.names = factorisations(),
                             .exclude = {"last"},
                             .view = ConvView::Raw,
                             .passed = passed},
          .factor_draw = draw(),
          .averaged_uploads = 1,
          .sends_buffers = rest_ == Rest::All};
}

void LoRA::declare(OptionSet& options) {
  options.add("algorithm.init_range", range_, above(0.0),
              "a of the uniform distribution U(-a, a) / sqrt(inputs) of A; B starts at 0");
  options.add("algorithm.rest", rest_,
              Names<Rest>{{"frozen", Rest::Frozen}, {"head", Rest::Head}, {"all", Rest::All}},
              "what is trained in full of layers without an adapter, and of biases and norms: "
              "nothing, what belongs to the head, or all");
  options.acts("train.buffers", where("algorithm.rest", {"all"}));  // others' stay the base's
  declare_averaging(options);
}

void LoRA::initialise(const Setup& setup) {
  seed_ = setup.seed();
  const Rows base = setup.initial_model();  // also where it is a file's
  FactorMap& updates = setup.factor_map();
  updates.draw_constants(seed_, draw(), base.values.options());
  adapted_.emplace(updates, base.values.options());
  adapted_->frozen() = base;
  begin(setup, updates.initial(base, seed_, draw()), *adapted_);
}

std::vector<NamedTensor> LoRA::drawn_in(std::int64_t round) const {
  if (round != 1) return {};
  return updates().drawn(updates().initial(adapted_->frozen(), seed_, draw()));
}

void LoRA::visit_state(StateVisitor& state) {
  FactorAveraging::visit_state(state);
  state.rows("frozen", adapted_->frozen());
}

}  // namespace fedhpc
