#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/models/image_layers.hpp"
#include "fedhpc/models/model.hpp"

#include "models/description_writer.hpp"

namespace fedhpc {

/// The choices of a family where model.norm and model.bias say nothing.
struct FamilyDefaults {
  NormChoice norm = NormChoice::Batch;
  BiasChoice bias = BiasChoice::False;  ///< of the convolutions
};

/// Writes a network over images, keeping track of their shape.
class ImageNet {
 public:
  /// The value of a layer that others go on from.
  struct Place {
    std::size_t line;
    ImageShape shape;
  };

  /// Throws ConfigError if samples are no images [channels, height, width].
  ImageNet(const ModelOptions& options, const std::vector<std::int64_t>& shape,
           FamilyDefaults defaults);

  /// Returns `channels` times model.width, at least 1.
  std::int64_t scaled(std::int64_t channels) const;
  const ImageShape& shape() const { return shape_; }
  Bias bias() const { return bias_; }

  /// Adds a convolution to `channels` (as they are), the norm if there is one, and what
  /// follows; pooling: 2x2 windows, stride 2. Throws ConfigError for an image too small to pool, or
  /// channels that do not make equal groups.
  void conv(const std::string& name, const std::string& norm_name, std::int64_t channels,
            Window window, Then then);
  void relu();
  void dropout(double p);
  void max_pool(Window window);
  void average_all();  ///< each channel's mean
  void max_all();      ///< each channel's maximum
  void linear(const std::string& name, std::int64_t out, Bias bias);

  Place here() const { return {writer_.last(), shape_}; }
  /// The next layer takes the value there.
  void go_on_from(const Place& place);
  /// Adds the value there to the last one.
  void add(const Place& other);

  std::unique_ptr<Model> finish() { return writer_.build(); }

 private:
  static DescriptionWriter::Numbers numbers_of(Window window);
  void norm(const std::string& name);
  void check_window(Window window, std::string_view what) const;

  std::string family_;
  double width_;
  NormChoice norm_;  // not Auto
  std::int64_t groups_;
  Bias bias_;
  std::vector<std::int64_t> data_shape_;
  ImageShape shape_;
  bool flat_ = false;  // linear layers have begun
  DescriptionWriter writer_;
};

}  // namespace fedhpc
