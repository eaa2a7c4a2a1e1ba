#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>
#include <jpeglib.h>

#include "fedhpc/data/dataset.hpp"

#include "data/data_support.hpp"
#include "data/jpeg.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// A JPEG file of one colour: {grey} or {red, green, blue}.
Bytes jpeg_bytes(const Bytes& colour, int side = 64) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(side);
  info.image_height = static_cast<JDIMENSION>(side);
  info.input_components = static_cast<int>(colour.size());
  info.in_color_space = colour.size() == 1   ? JCS_GRAYSCALE
                        : colour.size() == 3 ? JCS_RGB
                                             : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  Bytes line;
  for (int x = 0; x < side; ++x) line.insert(line.end(), colour.begin(), colour.end());
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

std::string decode_message(const Bytes& bytes) {
  Bytes pixels(3 * 64 * 64);
  return message_of<DataError>([&] { decode_jpeg(bytes, "a.JPEG", 64, 64, pixels.data()); });
}

TEST(JpegTest, ColoursComeChannelByChannelAndGreyGivesThreeEqualOnes) {
  Bytes pixels(3 * 64 * 64);
  decode_jpeg(jpeg_bytes({200, 100, 50}), "a.JPEG", 64, 64, pixels.data());
  EXPECT_NEAR(pixels[0], 200, 2);
  EXPECT_NEAR(pixels[64 * 64 + 17], 100, 2);
  EXPECT_NEAR(pixels[2 * 64 * 64 + 4095], 50, 2);
  decode_jpeg(jpeg_bytes({70}), "a.JPEG", 64, 64, pixels.data());
  for (const std::uint8_t pixel : pixels) ASSERT_EQ(pixel, 70);
}

TEST(JpegTest, ABadFileIsNamed) {
  expect_in("JPEG file 'a.JPEG': found an empty file", decode_message({}));
  expect_in("'a.JPEG': found damaged data (Not a JPEG file", decode_message({1, 2, 3, 4}));
  expect_in("found an image of 32 x 32, expected 64 x 64",
            decode_message(jpeg_bytes({1, 2, 3}, 32)));
  expect_in("found colours of another kind", decode_message(jpeg_bytes({1, 2, 3, 4})));
}

TEST(JpegTest, EveryTruncationIsNoticed) {
  const Bytes whole = jpeg_bytes({200, 100, 50});
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    expect_in("found ", decode_message({whole.begin(), whole.begin() + static_cast<long>(length)}));
  }
}

class TinyImagenetTest : public ::testing::Test {
 protected:
  TinyImagenetTest() {
    options.name = "tinyimagenet";
    options.dir = folder.path();
    write_text("wnids.txt", "n2\nn1\n");
    write("train/n2/images/n2_0.JPEG", {20});
    write("train/n2/images/n2_1.JPEG", {21});
    write("train/n1/images/n1_0.JPEG", {10, 110, 210});
    write_text("train/n2/n2_boxes.txt", "n2_0.JPEG\t0\t0\t9\t9\nn2_1.JPEG\t0\t0\t9\t9\n");
    write("val/images/val_0.JPEG", {5});
    write("val/images/val_1.JPEG", {6});
    write_text("val/val_annotations.txt",
               "val_1.JPEG\tn1\t0\t0\t9\t9\nval_0.JPEG\tn2\t0\t0\t9\t9\n");
  }
  std::string at(const std::string& name) { return folder.path("tiny-imagenet-200/" + name); }
  void write(const std::string& name, const Bytes& colour) {
    write_bytes(at(name), jpeg_bytes(colour));
  }
  void write_text(const std::string& name, const std::string& text) {
    write_bytes(at(name), {text.begin(), text.end()});
  }
  std::string message() {
    return message_of<DataError>([&] { open_dataset(options); });
  }

  TemporaryFolder folder;
  DataOptions options;
};

TEST_F(TinyImagenetTest, LabelsAreLinesOfTheListOfClasses) {
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{3, 64, 64}));
  EXPECT_EQ(data->classes(), 2);
  EXPECT_EQ(data->num_train(), 3);
  EXPECT_EQ(data->num_test(), 2);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{0, 0, 1, 1, 0}));
  const std::vector<std::int64_t> ids = {3, 1, 2};
  const Samples samples = data->read(ids);
  const auto* pixels = samples.features.data_ptr<std::uint8_t>();
  EXPECT_EQ(pixels[0], 6);
  EXPECT_EQ(pixels[3 * 4096 + 2 * 4096], 21);
  EXPECT_NEAR(pixels[2 * 3 * 4096 + 4096], 110, 2);
  EXPECT_EQ(samples.labels.data_ptr<std::int64_t>()[0], 1);
}

TEST_F(TinyImagenetTest, WhatIsMissingOrUnknownIsNamed) {
  write_text("val/val_annotations.txt", "val_1.JPEG\tn3\t0\t0\t9\t9\n");
  expect_in("found class 'n3' in line 1, expected a class of wnids.txt", message());
  write_text("val/val_annotations.txt", "val_7.JPEG\tn1\t0\t0\t9\t9\n");
  expect_in("val_7.JPEG': found no such file", message());
  std::filesystem::remove(at("val/val_annotations.txt"));
  expect_in("val_annotations.txt' cannot be read", message());
  std::filesystem::remove(at("train/n2/images/n2_1.JPEG"));
  expect_in("found 1 images, expected 2 as in '", message());
  std::filesystem::remove_all(at("train/n2"));
  expect_in("train/n2/images': found no image, expected files *.JPEG", message());
  write_text("wnids.txt", "n1\nn1\n");
  expect_in("found 'n1' twice", message());
  std::filesystem::remove(at("wnids.txt"));
  expect_in("tools/fetch_data.py tinyimagenet", message());
}

TEST_F(TinyImagenetTest, ABadImageIsNamedWhenItIsRead) {
  write_bytes(at("train/n1/images/n1_0.JPEG"), {9, 9});
  const auto data = open_dataset(options);
  const std::vector<std::int64_t> ids = {2};
  expect_in("n1_0.JPEG': found damaged data", message_of<DataError>([&] { data->read(ids); }));
}

}  // namespace
}  // namespace fedhpc
