// Tiny ImageNet (cs231n.stanford.edu): train/WNID/images/*.JPEG, val/images with
// val/val_annotations.txt, wnids.txt. A label is the class's line in wnids.txt. Training samples
// are ordered by label, then by file name; the official test set is val, in the order of its
// annotations (the labels of the folder test are not public). Images are decoded when they are
// read, so that a rank decodes its own clients' only.

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"

#include "data/byte_source.hpp"
#include "data/datasets.hpp"
#include "data/jpeg.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;
constexpr int kSide = 64;

/// The lines of a text file, without line ends; empty ones are left out.
std::vector<std::string> lines_of(const std::string& path) {
  const std::vector<std::uint8_t> bytes = read_bytes(path);
  std::istringstream stream(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// Files by name, each with its label.
struct Listing {
  std::vector<std::string> paths;
  std::vector<std::int64_t> labels;

  void add(const std::string& path, std::int64_t label) {
    paths.push_back(path);
    labels.push_back(label);
  }
};

[[noreturn]] void fail(const std::string& path, const std::string& found,
                       const std::string& expected) {
  throw DataError(concat("Tiny ImageNet, '", path, "': found ", found, ", expected ", expected,
                         "; unpack or fetch it again with 'tools/fetch_data.py tinyimagenet'"));
}

/// Adds the images of one training class; its list of boxes, if there, says how many there are.
void add_class(const fs::path& folder, const std::string& wnid, std::int64_t label,
               Listing& listing) {
  const fs::path images = folder / wnid / "images";
  std::error_code missing;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(images, missing)) {
    if (entry.path().extension() == ".JPEG") paths.push_back(entry.path().string());
  }
  if (paths.empty()) {
    const bool closed = missing && missing != std::errc::no_such_file_or_directory;
    fail(images.string(), closed ? missing.message() : "no image", "files *.JPEG");
  }
  const fs::path boxes = folder / wnid / (wnid + "_boxes.txt");
  if (fs::exists(boxes, missing) && lines_of(boxes.string()).size() != paths.size()) {
    fail(images.string(), concat(paths.size(), " images"),
         concat(lines_of(boxes.string()).size(), " as in '", boxes.string(), "'"));
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) listing.add(path, label);
}

/// The validation images in the order of their annotations: name, tab, class, tab, ...
void add_validation(const fs::path& folder, const std::map<std::string, std::int64_t>& labels,
                    Listing& listing) {
  const std::string path = (folder / "val_annotations.txt").string();
  std::int64_t number = 0;
  for (const std::string& line : lines_of(path)) {
    ++number;
    std::istringstream words(line);
    std::string name;
    std::string wnid;
    words >> name >> wnid;
    const auto label = labels.find(wnid);
    if (label == labels.end()) {
      fail(path, concat("class '", wnid, "' in line ", number), "a class of wnids.txt");
    }
    const fs::path image = folder / "images" / name;
    std::error_code missing;
    if (!fs::exists(image, missing)) {
      fail(image.string(), missing ? missing.message() : "no such file",
           concat("it, by line ", number, " of the annotations"));
    }
    listing.add(image.string(), label->second);
  }
}

class TinyImagenet : public Dataset {
 public:
  TinyImagenet(Listing listing, std::int64_t num_train, std::int64_t classes)
      : listing_(std::move(listing)), num_train_(num_train), classes_(classes) {}

  std::vector<std::int64_t> shape() const override { return {3, kSide, kSide}; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return num_train_; }
  std::int64_t num_test() const override {
    return static_cast<std::int64_t>(listing_.paths.size()) - num_train_;
  }
  std::vector<std::int64_t> labels() const override { return listing_.labels; }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::empty({count, features()}, at::kByte), at::empty({count}, at::kLong)};
    auto* pixels = samples.features.data_ptr<std::uint8_t>();
    auto* labels = samples.labels.data_ptr<std::int64_t>();
    for (const std::int64_t id : ids) {
      require(0 <= id && id < num_train() + num_test(), "a sample id lies in the data set");
      const std::string& path = listing_.paths[static_cast<std::size_t>(id)];
      decode_jpeg(read_bytes(path), path, kSide, kSide, pixels);
      pixels += features();
      *labels++ = listing_.labels[static_cast<std::size_t>(id)];
    }
    return samples;
  }

 private:
  Listing listing_;  // [S] training first
  std::int64_t num_train_;
  std::int64_t classes_;
};

}  // namespace

std::unique_ptr<Dataset> open_tinyimagenet(const DataOptions& options) {
  const std::string names =
      locate(data_directory(options), "tiny-imagenet-200", "wnids.txt", options.name);
  const fs::path root = fs::path(names).parent_path();
  std::map<std::string, std::int64_t> labels;
  Listing listing;
  for (const std::string& wnid : lines_of(names)) {
    const auto label = static_cast<std::int64_t>(labels.size());
    if (!labels.emplace(wnid, label).second) fail(names, "'" + wnid + "' twice", "it once");
    add_class(root / "train", wnid, label, listing);
  }
  if (labels.size() < 2) fail(names, concat(labels.size(), " classes"), "at least 2");
  const auto num_train = static_cast<std::int64_t>(listing.paths.size());
  add_validation(root / "val", labels, listing);
  return std::make_unique<TinyImagenet>(std::move(listing), num_train,
                                        static_cast<std::int64_t>(labels.size()));
}

}  // namespace fedhpc
