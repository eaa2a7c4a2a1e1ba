#pragma once

#include <memory>
#include <string>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {

/// Keys of the methods whose server averages what its clients upload.
struct AveragingOptions {
  Weighting weighting = Weighting::Samples;
  std::string codec = "dense";

  /// Declares algorithm.weighting and algorithm.codec, which holds for everything that goes up.
  void declare(OptionSet& options);
  std::unique_ptr<Codec> make_upload_codec() const { return make_codec(codec, "algorithm.codec"); }
};

}  // namespace fedhpc
