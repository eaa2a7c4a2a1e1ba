#include "data/jpeg.hpp"

#include <csetjmp>
#include <cstdio>
#include <vector>

#include <jpeglib.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// libjpeg's error manager, which leaves the library by longjmp: an exception cannot pass C code.
struct Errors {
  jpeg_error_mgr manager{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->back, 1);
}

/// Level -1 is a warning that data are damaged; the others trace.
void take_message(j_common_ptr info, int level) {
  if (level < 0) leave(info);
}

/// What decoding needs; plain memory, so that longjmp may pass over it.
struct Decoder {
  jpeg_decompress_struct info{};
  Errors errors;
};

/// Runs `step` with the library's errors coming back as false.
template <typename Step>
bool guarded(Decoder& decoder, const Step& step) {
  if (setjmp(decoder.errors.back) != 0) return false;
  step(decoder.info);
  return true;
}

/// Frees the decoder's memory at the end of a scope.
class Cleanup {
 public:
  explicit Cleanup(Decoder& decoder) : decoder_(decoder) {}
  ~Cleanup() { jpeg_destroy_decompress(&decoder_.info); }
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;

 private:
  Decoder& decoder_;
};

}  // namespace

void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& path, int height,
                 int width, std::uint8_t* pixels) {
  const auto fail = [&](const auto&... parts) {
    throw DataError(concat("JPEG file '", path, "': found ", parts...));
  };
  if (bytes.empty()) fail("an empty file, expected an image; fetch it again");
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&decoder.errors.manager);
  decoder.errors.manager.error_exit = leave;
  decoder.errors.manager.emit_message = take_message;
  const Cleanup cleanup(decoder);
  const auto size = static_cast<unsigned long>(bytes.size());
  const bool known = guarded(decoder, [&](jpeg_decompress_struct& info) {
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, bytes.data(), size);
    jpeg_read_header(&info, TRUE);
  });
  if (!known) fail("damaged data (", decoder.errors.message, "); fetch it again");
  jpeg_decompress_struct& image = decoder.info;
  if (static_cast<int>(image.image_height) != height ||
      static_cast<int>(image.image_width) != width) {
    fail("an image of ", image.image_height, " x ", image.image_width, ", expected ", height, " x ",
         width);
  }
  if (image.jpeg_color_space != JCS_GRAYSCALE && image.jpeg_color_space != JCS_YCbCr &&
      image.jpeg_color_space != JCS_RGB) {
    fail("colours of another kind, expected grey or red, green and blue");
  }
  const auto plane = static_cast<std::size_t>(height * width);
  std::vector<std::uint8_t> line(3 * static_cast<std::size_t>(width));
  const bool decoded = guarded(decoder, [&](jpeg_decompress_struct& info) {
    info.out_color_space = JCS_RGB;  // also of a grey image: three equal channels
    jpeg_start_decompress(&info);
    std::uint8_t* out = pixels;
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = line.data();
      jpeg_read_scanlines(&info, &row, 1);
      for (int x = 0; x < width; ++x, ++out) {
        for (std::size_t c = 0; c < 3; ++c)
          out[c * plane] = line[3 * static_cast<std::size_t>(x) + c];
      }
    }
    jpeg_finish_decompress(&info);
  });
  if (!decoded) fail("damaged data (", decoder.errors.message, "); fetch it again");
}

}  // namespace fedhpc
