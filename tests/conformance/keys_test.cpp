#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/key_grid.hpp"
#include "fixtures/tiny_run.hpp"
#include "support/turns.hpp"

// What holds for every algorithm with its defaults holds for its other settings: every key of the
// option table, in pairs.
namespace fedhpc::testing {
namespace {

TEST(Pairwise, HasAllPairsThatAreLegal) {
  const std::vector<KeyValues> keys{
      {"a", {"1", "2"}}, {"b", {"1"}}, {"c", {"1", "2", "3"}}, {"d", {"1"}}};
  // b is taken with a = 2 only, and a = 1 never with c = 3.
  const auto legal = [](const Keys& row) {
    const auto value = [&](const std::string& key) {
      return row.contains(key) ? row.at(key) : std::string("0");
    };
    return (value("b") == "0" || value("a") == "2") && !(value("a") == "1" && value("c") == "3");
  };
  const std::vector<Keys> rows = pairwise(keys, legal);
  EXPECT_TRUE(rows.front().empty());
  EXPECT_TRUE(std::all_of(rows.begin(), rows.end(), legal));
  EXPECT_LT(rows.size(), 24U) << "all there are";
  const auto together = [&](const Keys& wanted) {
    return std::any_of(rows.begin(), rows.end(), [&](const Keys& row) {
      return std::all_of(wanted.begin(), wanted.end(), [&](const auto& key) {
        const auto found = row.find(key.first);
        return key.second == "0" ? found == row.end()
                                 : found != row.end() && found->second == key.second;
      });
    });
  };
  for (const KeyValues& one : keys) {
    for (const KeyValues& other : keys) {
      if (one.key >= other.key) continue;
      std::vector<std::string> of_one{"0"};
      of_one.insert(of_one.end(), one.values.begin(), one.values.end());
      std::vector<std::string> of_other{"0"};
      of_other.insert(of_other.end(), other.values.begin(), other.values.end());
      for (const std::string& a : of_one) {
        for (const std::string& b : of_other) {
          const Keys both{{one.key, a}, {other.key, b}};
          const bool never = (one.key == "a" && other.key == "b" && a != "2" && b == "1") ||
                             (one.key == "a" && other.key == "c" && a == "1" && b == "3");
          EXPECT_EQ(together(both), !never) << one.key << a << other.key << b;
        }
      }
    }
  }
}

class EveryKeyOf : public ::testing::TestWithParam<std::string> {
 protected:
  static Keys keys_of(Keys row) {
    // Sizes as uneven as in the file, which takes a process to look through.
    row.insert({{"data.partition", "dirichlet"},
                {"data.alpha", "0.1"},
                {"data.min_samples", "0"},
                {"network.latency_ms", "1"},
                {"network.step_seconds", "0.5"}});
    // Steps of theta that momentum leaves stable.
    if (GetParam() == "pfedme") row.insert({"algorithm.personal_lr", "0.02"});
    Keys keys = tiny_keys_of(GetParam(), row);
    keys.erase("data.partition_file");
    if (keys["train.lr"] == "0.1") keys["train.lr"] = "0.02";  // with momentum, too
    return keys;
  }
  /// Found by the first rank, which asks the option table some ten thousand times.
  std::vector<Keys> rows() const {
    std::string text;
    if (world_->rank() == 0) {
      const std::vector<KeyValues> keys = key_values(GetParam());
      const std::vector<Keys> found =
          pairwise(keys, [](const Keys& row) { return !refuses(keys_of(row)); });
      for (const KeyValues& one : keys) expect_acting(one, found);
      text = text_of(found);
    }
    return rows_of(world_->all_texts(text).front());
  }

  static void expect_acting(const KeyValues& key, const std::vector<Keys>& rows) {
    if (!key.key.starts_with("algorithm.")) return;  // a method may refuse those of others
    for (const std::string& value : key.values) {
      const auto acts = [&](const Keys& row) {
        const auto found = row.find(key.key);
        return found != row.end() && found->second == value;
      };
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), acts)) << key.key << " = " << value;
    }
  }

  /// A line for each row, "key=value" and a tab for each of its keys.
  static std::string text_of(const std::vector<Keys>& rows) {
    std::string text;
    for (const Keys& row : rows) {
      for (const auto& [key, value] : row) text += key + '=' + value + '\t';
      text += '\n';
    }
    return text;
  }
  static std::vector<Keys> rows_of(const std::string& text) {
    std::vector<Keys> rows;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      Keys& row = rows.emplace_back();
      std::istringstream words(line);
      for (std::string word; std::getline(words, word, '\t');) {
        const std::size_t equals = word.find('=');
        row[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
    return rows;
  }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  std::unique_ptr<Communicator> alone_ = local_communicator();
};

std::string options_of(const Keys& row) {
  std::string text;
  for (const auto& [key, value] : row) text += " --" + key + "=" + value;
  return text;
}

bool has_clusters(const Keys& keys) {
  const auto is = [&](const std::string& key) {
    return keys.contains(key) && keys.at(key) == "kmeans";
  };
  return is("algorithm.codec") || is("algorithm.downlink_codec");
}

/// How far apart the models of two runs may be.
double bound_of(const Keys& keys) {
  const auto is = [&](const std::string& key, const std::string& value) {
    return keys.contains(key) && keys.at(key) == value;
  };
  // Adam takes full steps along rounding errors where factors stand for the tensor already.
  if (is("algorithm.aggregate", "act") && is("algorithm.broadcast", "tensor")) return 1e-6;
  // Adam's first steps are of one length but for rounding, which then decides who clusters with
  // whom.
  if (has_clusters(keys) && is("train.optimizer", "adam")) return 1e-6;
  return 1e-9;
}

/// How far apart the bytes of two runs may be, as a share of them.
double share_of_bytes(const Keys& keys) {
  // Values that differ by rounding alone have a centre each: of ef21's changes, which may be 0 but for
  // rounding, a payload has one more or none.
  const auto feedback = keys.find("algorithm.error_feedback");
  if (has_clusters(keys) && feedback != keys.end() && feedback->second == "ef21") return 0.2;
  // A coder's payload may be a byte shorter where a value has gone to another cluster. scaffold reads
  // gradients off steps: where they are 0 rounding decides what is left, and whether a codec of what
  // is not 0 sends it.
  const bool by_rounding =
      bound_of(keys) > 1e-9 || has_clusters(keys) || keys.at("algorithm.name") == "scaffold";
  return by_rounding ? 0.02 : 0;
}

bool both_nan(double a, double b) { return std::isnan(a) && std::isnan(b); }

void expect_same(const TinyResult& actual, const TinyResult& expected, const Keys& keys) {
  ASSERT_TRUE(expected.global.isfinite().all().item<bool>()) << "comparable";
  EXPECT_LT(distance(actual.global, expected.global), bound_of(keys));
  EXPECT_LT(distance(actual.personal, expected.personal), bound_of(keys));
  EXPECT_EQ(actual.cohorts, expected.cohorts);
  ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
  for (std::size_t t = 0; t < expected.metrics.size(); ++t) {
    const RoundMetrics& a = actual.metrics[t];
    const RoundMetrics& b = expected.metrics[t];
    EXPECT_NEAR(bytes_up(a), bytes_up(b), share_of_bytes(keys) * bytes_up(b));
    EXPECT_NEAR(bytes_down(a), bytes_down(b), share_of_bytes(keys) * bytes_down(b));
    EXPECT_NEAR(a.simulated_seconds, b.simulated_seconds, 1e-9);
    EXPECT_TRUE(both_nan(a.train_loss, b.train_loss) ||
                std::abs(a.train_loss - b.train_loss) < 1e-7 * (1 + b.train_loss));
  }
}

TEST_P(EveryKeyOf, ActsAndIsSameOnAnyRanksAndInAnyBlockWidth) {
  for (const Keys& row : rows()) {
    if (!row.empty() && !takes_case(options_of(row), 6)) continue;
    const Keys these = keys_of(row);
    SCOPED_TRACE(options_of(row));
    const bool leads = world_->rank() == 0;
    TinyResult expected;
    if (leads) expected = run(these, *alone_);
    Keys wide = these;  // one client in a block, and three
    wide["train.block"] = "3";
    const TinyResult actual = run(wide, *world_);
    if (leads) expect_same(actual, expected, these);
  }
}

/// What a run of a tiny configuration comes to, but for what is the machine's.
struct Outcome {
  Tensor global;
  Tensor personal;
  std::vector<double> metrics;

  explicit Outcome(const TinyResult& result) : global(result.global), personal(result.personal) {
    for (const RoundMetrics& round : result.metrics) {
      metrics.insert(metrics.end(), round.own.begin(), round.own.end());
      metrics.insert(metrics.end(), {bytes_up(round), bytes_down(round), round.simulated_seconds,
                                     round.train_loss, round.personal_accuracy});
    }
  }
  bool operator==(const Outcome& other) const {
    return global.equal(other.global) && personal.equal(other.personal) &&
           std::ranges::equal(metrics, other.metrics,
                              [](double a, double b) { return a == b || both_nan(a, b); });
  }
};

/// Settings that change nothing here, by the reason.
const std::map<std::string, std::string>& idle_settings() {
  static const std::map<std::string, std::string> settings{
      {"fedpara algorithm.codec_rank = 1", "factors of so few columns are sent whole"},
      {"pfedgp algorithm.clip = 0", "no gradient here is longer than 50, the default"},
      {"sfedhp algorithm.gamma_density = 0.3", "no density here lies between it and the default"},
      {"simnet algorithm.covariance_distance = log_euclidean", "the same clients are the nearest"},
      {"simnet algorithm.kernel = exact", "what auto takes of so few samples"},
      {"tdpfed algorithm.fit_sweeps = 1", "of kernels, see tdpfed_test"},
  };
  return settings;
}

TEST_P(EveryKeyOf, ChangesWhatARunComesTo) {
  if (world_->size() > 1) return;  // as on one rank
  const std::vector<KeyValues> keys = key_values(GetParam());
  std::map<Keys, std::optional<Outcome>> known;
  const auto outcome = [&](const Keys& row) -> const std::optional<Outcome>& {
    const auto [found, is_new] = known.try_emplace(row);
    if (is_new && !refuses(keys_of(row))) found->second.emplace(run(keys_of(row), *alone_));
    return found->second;
  };
  std::vector<Keys> beside{{}};  // no other key, one, or those of a row
  for (const KeyValues& one : keys) {
    for (const std::string& value : one.values) beside.push_back({{one.key, value}});
  }
  bool has_rows = false;
  for (const auto& [key, values] : keys) {
    for (const std::string& value :
         key.starts_with("algorithm.") ? values : std::vector<std::string>{}) {
      const std::string setting = concat(GetParam(), ' ', key, " = ", value);
      if (idle_settings().contains(setting) || !takes_case(setting, 6)) continue;
      const auto acts = [&](Keys row) {
        row.erase(key);
        if (!outcome(row)) return false;
        const Outcome& without = *outcome(row);
        row[key] = value;
        return outcome(row) && *outcome(row) != without;
      };
      if (std::ranges::any_of(beside, acts)) continue;
      if (!std::exchange(has_rows, true)) std::ranges::copy(rows(), std::back_inserter(beside));
      EXPECT_TRUE(std::ranges::any_of(beside, acts)) << setting;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryKeyOf, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
