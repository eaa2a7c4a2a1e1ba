// Words of messages: lists, and the name that was most likely meant.

#include <algorithm>
#include <cctype>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

namespace {

/// What other programs call a key, and its name here.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"learning_rate", "lr"},    {"epochs", "local_epochs"}, {"num_epochs", "local_epochs"},
    {"num_clients", "clients"}, {"num_rounds", "rounds"},
};

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto same = [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  };
  const auto distance = [&](std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      for (std::size_t j = 1; j <= b.size(); ++j) {
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                            d[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0U : 1U)});
        if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
      }
    }
    return d[a.size()][b.size()];
  };
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t d = distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string likely_key(std::string_view key, const std::vector<std::string>& keys) {
  const auto name_of = [](std::string_view whole) { return whole.substr(whole.find('.') + 1); };
  for (const auto& [other, name] : kOtherNames) {
    if (name_of(key) != other) continue;
    for (const std::string& candidate : keys) {
      if (name_of(candidate) == name) return candidate;
    }
  }
  const std::string close = nearest(key, keys);
  if (close.starts_with(key) || (!close.empty() && name_of(close) == name_of(key))) return close;
  std::string begun;
  std::string elsewhere;
  for (const std::string& candidate : keys) {
    if (begun.empty() && !key.empty() && candidate.starts_with(key)) begun = candidate;
    if (elsewhere.empty() && name_of(candidate) == name_of(key)) elsewhere = candidate;
  }
  if (!elsewhere.empty()) return elsewhere;
  return begun.empty() ? close : begun;
}

std::string suggestion(const std::string& close, const std::string& otherwise) {
  return close.empty() ? otherwise : "; did you mean '" + close + "'?";
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

}  // namespace fedhpc
