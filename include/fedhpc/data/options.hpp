#pragma once

#include <cstdint>
#include <string>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

enum class DataSplit { Client, Official };
enum class LabelsRule { Random, LeastUsed, Consecutive };
enum class Standardize { None, Unit, Half, Scalar, Channel, Pixel };
enum class Augment { None, CropFlip };
enum class Separator { Auto, Comma, Semicolon, Tab };
enum class Header { Auto, Yes, No };
enum class LabelKind { Auto, Class, Number };

/// The `data.*` keys.
struct DataOptions {
  std::string name = "glyphs";
  std::string dir;  ///< empty: $FEDHPC_DATA
  std::string file;
  std::string test_file;
  std::string label_column = "last";
  LabelKind label_kind = LabelKind::Auto;
  std::string client_column;
  Separator separator = Separator::Auto;
  Header header = Header::Auto;
  DataSplit split = DataSplit::Client;
  std::string partition = "iid";
  std::string partition_file;
  std::int64_t clients = 20;
  double alpha = 0.5;
  std::int64_t labels_per_client = 2;
  LabelsRule labels_rule = LabelsRule::Random;
  std::int64_t shards_per_client = 2;
  std::int64_t pfedme_seed = 1;
  double train_fraction = 0.75;
  std::int64_t train_per_class = 0;
  std::int64_t test_per_class = 0;
  double validation_fraction = 0;
  std::int64_t min_samples = 10;
  Standardize standardize = Standardize::Unit;
  Augment augment = Augment::None;
  std::int64_t seed = 0;  ///< follows run.seed when not set

  // generators
  std::int64_t samples_per_client = 200;
  std::int64_t features = 60;
  std::int64_t classes = 10;
  double synthetic_alpha = 0.5;
  double synthetic_beta = 0.5;
  double own_words = 0.3;
  std::int64_t synthetic_clusters = 0;  ///< 0: every client is one of its own

  void declare(OptionSet& options);
};

}  // namespace fedhpc
