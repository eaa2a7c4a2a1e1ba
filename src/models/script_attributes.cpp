#include "models/script_attributes.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

namespace fedhpc {

namespace {

using torch::jit::IValue;

/// A copy that changes within the value do not reach.
IValue copy_of(const IValue& value) {
  try {
    return value.deepcopy();
  } catch (const c10::Error&) {
    return value;  // of C++, which no script can copy or change
  }
}

bool same_value(const IValue& a, const IValue& b);

bool same_values(at::ArrayRef<IValue> a, at::ArrayRef<IValue> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_value);
}

bool same_dictionaries(const IValue& a, const IValue& b) {
  const auto first = a.toGenericDict();
  const auto second = b.toGenericDict();
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const auto& one, const auto& other) {
                      return same_value(one.key(), other.key()) &&
                             same_value(one.value(), other.value());
                    });
}

bool same_value(const IValue& a, const IValue& b) {
  if (a.tagKind() != b.tagKind()) return false;
  if (a.isTensor()) return same_bits(a.toTensor(), b.toTensor());
  if (a.isDouble()) {  // not a number is itself here
    return std::bit_cast<std::int64_t>(a.toDouble()) == std::bit_cast<std::int64_t>(b.toDouble());
  }
  if (a.isList()) return same_values(a.toListRef(), b.toListRef());
  if (a.isTuple()) {
    return same_values(a.toTupleRef().elements(), b.toTupleRef().elements());
  }
  if (a.isGenericDict()) return same_dictionaries(a, b);
  if (a.isModule()) return true;  // its own attributes are others
  if (a.isObject()) return same_values(a.toObjectRef().slots(), b.toObjectRef().slots());
  return a.is(b) || a == b;
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_same(b)) return true;
  if (a.defined() != b.defined() || a.layout() != b.layout()) return false;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.to_dense().contiguous();
  const at::Tensor y = b.to_dense().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

ScriptAttribute::ScriptAttribute(std::string name, torch::jit::ObjectPtr object, std::size_t index)
    : name_(std::move(name)),
      object_(std::move(object)),
      index_(index),
      initial_(copy_of(object_->getSlot(index))) {}

bool ScriptAttribute::has_changed() const {
  return !same_value(initial_, object_->getSlot(index_));
}

}  // namespace fedhpc
