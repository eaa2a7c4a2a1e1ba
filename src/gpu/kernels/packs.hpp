#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "gpu/kernels/kernel.hpp"

// How a kernel is launched on arguments: how many values a thread takes at once, how many threads
// there are.

namespace fedhpc::kernels {

// Threads on a card.
constexpr int kWarp = 32;          // of a team
constexpr int kMostThreads = 512;  // of a group
constexpr int kTileThreads = 128;  // of a group with memory

template <typename T>
bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % (kPack<T> * sizeof(T)) == 0;
}

/// Whether every value whose number in its sample or row is a multiple of the widest pack may be
/// read as one.
template <typename T>
bool packs(const DeviceStack& stack) {
  return is_aligned<T>(stack.data) && (stack.clients <= 1 || stack.client_stride % kPack<T> == 0) &&
         (stack.batch <= 1 || stack.sample_stride % kPack<T> == 0) &&
         stack.channel_stride % kPack<T> == 0;
}
template <typename T>
bool packs(const DeviceColumns& columns) {
  return is_aligned<T>(columns.data) && columns.stride % kPack<T> == 0;
}

/// Where the first value lies within its pack.
template <typename T>
std::int64_t place_in_pack(const DeviceColumns& columns) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(columns.data) / sizeof(T) %
                                   kPack<T>);
}

/// Whether value i of row c lies in the same place of its pack for all of them; what has no data
/// does not count.
template <typename T>
bool go_together(const DeviceColumns& first, std::initializer_list<DeviceColumns> others) {
  return std::all_of(others.begin(), others.end(), [&](const DeviceColumns& other) {
    return other.data == nullptr || (place_in_pack<T>(other) == place_in_pack<T>(first) &&
                                     (other.stride - first.stride) % kPack<T> == 0);
  });
}

/// Calls work with a constant: the number of values to take at once.
template <typename T, typename Work>
void with_pack(bool wide, Work&& work) {
  if (wide) {
    work(std::integral_constant<int, kPack<T>>{});
  } else {
    work(std::integral_constant<int, 1>{});
  }
}

/// Calls work with a constant: true or false.
template <typename Work>
void with_constant(bool value, Work&& work) {
  value ? work(std::true_type{}) : work(std::false_type{});
}

inline bool is_empty(const DeviceStack& stack) {
  return stack.clients == 0 || stack.batch == 0 || stack.width == 0;
}
inline std::int64_t samples_of(const DeviceStack& stack) { return stack.clients * stack.batch; }
inline std::int64_t values_of(const DeviceStack& stack) { return samples_of(stack) * stack.width; }

/// A stack whose samples are the channels of images by channels, each with its values of all samples.
inline DeviceStack in_rows(const DeviceStack& stack) {
  if (stack.channel_stride == 0) return stack;
  const std::int64_t places = stack.sample_stride;
  return {.data = stack.data,
          .clients = stack.clients,
          .batch = stack.width / places,
          .width = stack.batch * places,
          .client_stride = stack.client_stride,
          .sample_stride = stack.channel_stride};
}

/// Stacks whose samples and clients follow each other without gaps become one long sample: there is
/// less to compute per value.
inline void flatten(std::initializer_list<DeviceStack*> stacks) {
  for (DeviceStack* stack : stacks) *stack = in_rows(*stack);
  for (const DeviceStack* stack : stacks) {
    if (stack->batch > 1 && stack->sample_stride != stack->width) return;
    if (stack->clients > 1 && stack->client_stride != stack->batch * stack->width) return;
  }
  for (DeviceStack* stack : stacks) {
    stack->width = values_of(*stack);
    stack->clients = stack->batch = 1;
  }
}

/// Threads for a group with this much to do: whole warps.
inline int threads_for(std::int64_t work, int most) {
  int threads = 32;
  while (threads < most && threads < work) threads *= 2;
  return threads;
}

}  // namespace fedhpc::kernels
