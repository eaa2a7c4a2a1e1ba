#include "models/places_alike.hpp"

#include <map>
#include <utility>

namespace fedhpc {

namespace {

/// A tap, and where on the other side of the convolution it lies.
struct Seen {
  std::int64_t tap;
  std::int64_t at;
};

/// What each place of a side sees, in the order of `at`.
using SeenOfPlaces = std::vector<std::vector<Seen>>;

/// Outputs see inputs.
SeenOfPlaces seen_forward(const WindowSide& side, std::int64_t inputs, std::int64_t outputs) {
  SeenOfPlaces all(static_cast<std::size_t>(outputs));
  for (std::int64_t place = 0; place < outputs; ++place) {
    for (std::int64_t tap = 0; tap < side.size; ++tap) {
      const std::int64_t at = place * side.stride + tap * side.dilation - side.padding;
      if (0 <= at && at < inputs) all[static_cast<std::size_t>(place)].push_back({tap, at});
    }
  }
  return all;
}

/// Inputs see outputs: the same pairs turned round.
SeenOfPlaces seen_backward(const WindowSide& side, std::int64_t inputs, std::int64_t outputs) {
  SeenOfPlaces all(static_cast<std::size_t>(inputs));
  const SeenOfPlaces forward = seen_forward(side, inputs, outputs);
  for (std::int64_t place = 0; place < outputs; ++place) {
    for (const Seen& seen : forward[static_cast<std::size_t>(place)]) {
      all[static_cast<std::size_t>(seen.at)].push_back({side.size - 1 - seen.tap, place});
    }
  }
  return all;
}

/// Places of one side that see the same taps at the same distances from the first.
struct Alike {
  std::vector<Seen> seen;                                     // at: from the first
  std::vector<std::pair<std::int64_t, std::int64_t>> places;  // and where their first tap lies
};

std::vector<Alike> alike(const SeenOfPlaces& all) {
  std::vector<Alike> parts;
  std::map<std::vector<std::pair<std::int64_t, std::int64_t>>, std::size_t> known;
  for (std::size_t place = 0; place < all.size(); ++place) {
    const std::int64_t first = all[place].empty() ? 0 : all[place].front().at;
    std::vector<std::pair<std::int64_t, std::int64_t>> key;
    for (const Seen& seen : all[place]) key.emplace_back(seen.tap, seen.at - first);
    const auto [found, fresh] = known.emplace(key, parts.size());
    if (fresh) {
      parts.emplace_back();
      for (const auto& [tap, at] : key) parts.back().seen.push_back({tap, at});
    }
    parts[found->second].places.emplace_back(place, first);
  }
  return parts;
}

/// Joins two sides; `other` is the image that is seen.
PlacesAlike joined(const Alike& down, const Alike& across, std::int64_t width,
                   std::int64_t window_width, const ImageShape& other) {
  PlacesAlike all;
  for (const Seen& row : down.seen) {
    for (const Seen& column : across.seen) {
      const Run run{(row.at * other.width + column.at) * other.channels,
                    (row.tap * window_width + column.tap) * other.channels, other.channels};
      Run* last = all.runs.empty() ? nullptr : &all.runs.back();
      if (last != nullptr && last->offset + last->length == run.offset &&
          last->weight + last->length == run.weight) {
        last->length += run.length;
      } else {
        all.runs.push_back(run);
      }
    }
  }
  for (const auto& [y, other_y] : down.places) {
    for (const auto& [x, other_x] : across.places) {
      all.places.push_back(static_cast<std::int32_t>(y * width + x));
      all.pixels.push_back(
          static_cast<std::int32_t>((other_y * other.width + other_x) * other.channels));
    }
  }
  return all;
}

std::vector<PlacesAlike> joined(const SeenOfPlaces& down, const SeenOfPlaces& across,
                                std::int64_t window_width, const ImageShape& other) {
  std::vector<PlacesAlike> all;
  for (const Alike& rows : alike(down)) {
    for (const Alike& columns : alike(across)) {
      all.push_back(joined(rows, columns, std::ssize(across), window_width, other));
    }
  }
  return all;
}

}  // namespace

std::vector<PlacesAlike> outputs_alike(const ImageShape& in, const ImageShape& out,
                                       const Window& window) {
  return joined(seen_forward(window.down(), in.height, out.height),
                seen_forward(window.across(), in.width, out.width), window.size.width, in);
}

std::vector<PlacesAlike> inputs_alike(const ImageShape& in, const ImageShape& out,
                                      const Window& window) {
  return joined(seen_backward(window.down(), in.height, out.height),
                seen_backward(window.across(), in.width, out.width), window.size.width, out);
}

}  // namespace fedhpc
