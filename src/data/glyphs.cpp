// Glyphs: digits drawn with a pen of random width along strokes that are warped, slanted, rotated,
// scaled and shifted at random, on a noisy background.
//
// Sample id with label id mod 10 draws, in this order: the pose (Pose::draw), one number for each
// optional stroke, two for each point of a stroke, one word for each four pixels of noise.

#include "data/glyphs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <ATen/ops/empty.h>

#include "fedhpc/core/checked.hpp"
#include "fedhpc/core/rng.hpp"

#include "data/datasets.hpp"
#include "data/glyph_strokes.hpp"

namespace fedhpc {

namespace {

constexpr float kCentre = (kGlyphSide - 1) / 2.0F;  // [pixels]
constexpr float kHalfHeight = 8.6F;                 // [pixels] of a digit of scale 1
constexpr float kPointJitter = 0.05F;
constexpr float kOptionalStroke = 0.35F;  // probability
constexpr std::int64_t kPixelsPerWord = 4;

float between(Draws& draws, float low, float high) {
  return low + (high - low) * static_cast<float>(draws.uniform());
}

/// How one sample differs from its template.
struct Pose {
  float angle, slant, scale_x, scale_y, shift_x, shift_y;
  float wave_x, phase_x, wave_y, phase_y;  ///< a smooth warp: amplitude and phase of a sine
  float half_width;                        ///< of the pen, in pixels
  float ink, noise;                        ///< brightest stroke and noise, in grey levels

  static Pose draw(Draws& draws) {
    constexpr float kTurn = 2 * std::numbers::pi_v<float>;
    constexpr float kLargestAngle = 15 * std::numbers::pi_v<float> / 180;
    Pose pose{};
    pose.angle = between(draws, -kLargestAngle, kLargestAngle);
    pose.slant = between(draws, -.25F, .25F);
    pose.scale_x = kHalfHeight * between(draws, .75F, 1.2F);
    pose.scale_y = kHalfHeight * between(draws, .8F, 1.12F);
    pose.shift_x = between(draws, -2, 2);
    pose.shift_y = between(draws, -2, 2);
    pose.wave_x = between(draws, 0, .12F);
    pose.phase_x = between(draws, 0, kTurn);
    pose.wave_y = between(draws, 0, .12F);
    pose.phase_y = between(draws, 0, kTurn);
    pose.half_width = between(draws, .7F, 1.7F);
    pose.ink = between(draws, 160, 255);
    pose.noise = between(draws, 5, 30);
    return pose;
  }

  /// A point of the template in pixels.
  Point place(Point p) const {
    constexpr float kWaveNumber = 3;
    const float x = p.x + wave_x * std::sin(kWaveNumber * p.y + phase_x) + slant * -p.y;
    const float y = p.y + wave_y * std::sin(kWaveNumber * p.x + phase_y);
    const float u = scale_x * x;
    const float v = scale_y * y;
    return {kCentre + shift_x + u * std::cos(angle) - v * std::sin(angle),
            kCentre + shift_y + u * std::sin(angle) + v * std::cos(angle)};
  }
};

/// Squared distance of every pixel to the nearest stroke so far.
class DistanceField {
 public:
  DistanceField() { squared_.fill(kFar); }

  /// Takes in the line from a to b for the pixels within `reach` of it.
  void draw(Point a, Point b, float reach) {
    const float dx = b.x - a.x;
    const float dy = b.y - a.y;
    const float inverse_length = 1 / std::max(dx * dx + dy * dy, 1e-12F);
    const int left = first_pixel(std::min(a.x, b.x) - reach);
    const int right = last_pixel(std::max(a.x, b.x) + reach);
    const int top = first_pixel(std::min(a.y, b.y) - reach);
    const int bottom = last_pixel(std::max(a.y, b.y) + reach);
    for (int row = top; row <= bottom; ++row) {
      const float py = static_cast<float>(row) - a.y;
      float* line = squared_.data() + row * kGlyphSide;
      for (int column = left; column <= right; ++column) {
        const float px = static_cast<float>(column) - a.x;
        const float along = std::clamp((px * dx + py * dy) * inverse_length, 0.0F, 1.0F);
        const float ex = px - along * dx;
        const float ey = py - along * dy;
        line[column] = std::min(line[column], ex * ex + ey * ey);
      }
    }
  }

  /// Share of the pixel a pen of this half width covers, with an edge one pixel wide.
  float coverage(std::int64_t pixel, float half_width) const {
    const float squared = squared_[static_cast<std::size_t>(pixel)];
    if (squared == kFar) return 0;
    return std::clamp(half_width + 0.5F - std::sqrt(squared), 0.0F, 1.0F);
  }

 private:
  static constexpr float kFar = std::numeric_limits<float>::max();
  static int first_pixel(float x) { return std::max(0, static_cast<int>(std::ceil(x))); }
  static int last_pixel(float x) {
    return std::min<int>(kGlyphSide - 1, static_cast<int>(std::floor(x)));
  }

  std::array<float, kGlyphPixels> squared_;
};

void draw_strokes(Draws& draws, const Pose& pose, const std::vector<Stroke>& strokes,
                  DistanceField& field) {
  for (const Stroke& stroke : strokes) {
    if (stroke.optional && draws.uniform() >= kOptionalStroke) continue;
    Point previous;
    for (std::size_t i = 0; i < stroke.points.size(); ++i) {
      Point point = stroke.points[i];
      point.x += kPointJitter * between(draws, -1, 1);
      point.y += kPointJitter * between(draws, -1, 1);
      point = pose.place(point);
      if (i > 0) field.draw(previous, point, pose.half_width + 0.5F);
      previous = point;
    }
  }
}

class Glyphs : public Dataset {
 public:
  explicit Glyphs(const DataOptions& options)
      : seed_(static_cast<std::uint64_t>(options.seed)),
        num_train_(checked_product("the samples", {options.clients, options.samples_per_client})) {
    if (options.split == DataSplit::Official) num_test_ = std::max<std::int64_t>(1, num_train_ / 5);
  }

  std::vector<std::int64_t> shape() const override { return {1, kGlyphSide, kGlyphSide}; }
  std::int64_t classes() const override { return kGlyphClasses; }
  std::int64_t num_train() const override { return num_train_; }
  std::int64_t num_test() const override { return num_test_; }
  bool on_demand() const override { return true; }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> labels(static_cast<std::size_t>(num_train_ + num_test_));
    for (std::size_t s = 0; s < labels.size(); ++s) {
      labels[s] = static_cast<std::int64_t>(s) % kGlyphClasses;
    }
    return labels;
  }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::empty({count, kGlyphPixels}, at::kByte), at::empty({count}, at::kLong)};
    auto* pixels = samples.features.data_ptr<std::uint8_t>();
    auto* labels = samples.labels.data_ptr<std::int64_t>();
    for (const std::int64_t id : ids) {
      require(0 <= id && id < num_train_ + num_test_, "a sample id lies in the data set");
      render_glyph(seed_, id, pixels);
      pixels += kGlyphPixels;
      *labels++ = id % kGlyphClasses;
    }
    return samples;
  }

 private:
  std::uint64_t seed_;
  std::int64_t num_train_;
  std::int64_t num_test_ = 0;
};

}  // namespace

void render_glyph(std::uint64_t seed, std::int64_t id, std::uint8_t* pixels) {
  Draws draws(
      {.seed = seed, .purpose = Purpose::Generator, .client = static_cast<std::uint64_t>(id)});
  const Pose pose = Pose::draw(draws);
  DistanceField field;
  const auto digit = static_cast<std::size_t>(id % kGlyphClasses);
  draw_strokes(draws, pose, digit_strokes()[digit], field);
  for (std::int64_t first = 0; first < kGlyphPixels; first += kPixelsPerWord) {
    std::uint64_t word = draws.raw();
    for (std::int64_t i = first; i < first + kPixelsPerWord; ++i, word >>= 16) {
      // Two bytes make one triangular number in (-1, 1).
      const auto bytes = static_cast<float>((word & 255) + (word >> 8 & 255));
      const float noise = pose.noise * (bytes / 255 - 1);
      const float grey = pose.ink * field.coverage(i, pose.half_width) + std::abs(noise);
      pixels[i] = static_cast<std::uint8_t>(std::clamp(grey + 0.5F, 0.0F, 255.0F));
    }
  }
}

std::unique_ptr<Dataset> open_glyphs(const DataOptions& options) {
  return std::make_unique<Glyphs>(options);
}

}  // namespace fedhpc
