// What payloads become on the wire.

#include <nanobind/stl/string.h>

#include "fedhpc/codecs/compressors.hpp"

#include "bindings.hpp"
#include "training.hpp"

namespace fedhpc::python {

namespace {

/// The rows of a codec that knows their columns.
const Tensor& fitting(const std::string& verb, const PyCodec& codec, const Rows& rows) {
  if (codec.layout && !same_fields(codec.layout, rows.layout)) {
    refuse(verb, concat("a codec for rows of ", rows.layout->size(), " columns like these"),
           concat("one that was made for ", codec.layout->size(), " columns of another layout"));
  }
  return rows.values;
}

}  // namespace

const Codec& to_codec(std::string_view verb, nb::handle value, const Rows& rows,
                      std::shared_ptr<const Codec>& made) {
  if (value.is_none()) return dense_codec();
  PyCodec* codec = nullptr;
  if (nb::try_cast(value, codec) && codec != nullptr) {
    fitting(std::string(verb), *codec, rows);
    return *codec->codec;
  }
  std::string name;
  if (!nb::try_cast(value, name)) {
    throw nb::type_error("a codec is a name, one of fedhpc.codec(), or None");
  }
  made = CodecChoice{.name = name}.make();
  return *made;
}

void bind_codecs(nb::module_& core) {
  nb::class_<PyCodec>(core, "Codec", "What payloads become on the simulated wire.")
      .def(
          "encoded_bytes",
          [](const PyCodec& self, const PyRows& rows) {
            return to_numpy(std::span<const std::int64_t>(
                self.codec->encoded_bytes(fitting("codec.encoded_bytes", self, rows.get()))));
          },
          nb::arg("rows"), "The bytes of each row [C, n] on the wire: int64 [C].")
      .def(
          "transmit",
          [](const PyCodec& self, const PyRows& rows) {
            return to_numpy(std::span<const std::int64_t>(
                self.codec->transmit_(fitting("codec.transmit", self, rows.get()))));
          },
          nb::arg("rows"),
          "Replaces every row by what its receiver reads; returns the bytes of each: int64 [C].");
  core.def(
      "codec",
      [](const std::string& name, std::int64_t k) {
        return PyCodec{CodecChoice{.name = name, .k = k}.make()};
      },
      nb::arg("name"), nb::arg("k") = 16,
      "The codec of this name (fedhpc list codecs); `k`: the clusters of kmeans. ConfigError "
      "for an unknown name.");
  core.def(
      "largest_codec",
      [](nb::handle layout, std::int64_t k, nb::handle columns) {
        const LayoutPtr of_rows = to_layout(layout);
        ColumnRanges among = ranges_of(*of_rows, columns);
        std::int64_t count = 0;
        for (const Range& range : among) count += range.size();
        if (k < 0 || k > count) refuse("largest_codec", concat("k from 0 to ", count), concat(k));
        return PyCodec{make_largest_codec(std::move(among), k), of_rows};
      },
      nb::arg("layout"), nb::arg("k"), nb::arg("columns") = "trainable",
      "Top-K: of these columns the k largest magnitudes arrive and 0 for the others; all "
      "other columns arrive as they are.");
  core.def(
      "sign_codec",
      [](nb::handle layout, nb::handle columns) {
        const LayoutPtr of_rows = to_layout(layout);
        const Columns chosen = to_columns(columns);
        ColumnRanges tensors;
        for (const Field& field : of_rows->fields()) {
          if (chosen.hold(field.tags)) tensors.push_back({field.offset, field.offset + field.size});
        }
        return PyCodec{make_sign_codec(std::move(tensors)), of_rows};
      },
      nb::arg("layout"), nb::arg("columns") = "trainable",
      "A bit for every column of each field of these kinds, and one number for the field; "
      "all other columns arrive as they are.");
}

}  // namespace fedhpc::python
