#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "fedhpc/core/error.hpp"
#include "fedhpc/rounds/row_memory.hpp"

namespace fedhpc::testing {

/// A device whose addresses lead nowhere: who reads one directly crashes. Counts what is held and
/// refuses what was not allocated or lies outside.
class FakeDevice final : public RowMemory {
 public:
  explicit FakeDevice(std::int64_t capacity) : capacity_(capacity) {}

  void* allocate(std::int64_t bytes) override {
    if (held_ + bytes > capacity_) return nullptr;
    held_ += bytes;
    auto* address = reinterpret_cast<void*>(next_);  // in the first page, which nobody can map
    ++next_;
    memory_[address].resize(static_cast<std::size_t>(bytes));
    return address;
  }
  void free(void* memory) noexcept override {
    const auto found = memory_.find(memory);
    if (found == memory_.end()) {
      ++bad_frees_;
      return;
    }
    held_ -= static_cast<std::int64_t>(found->second.size());
    memory_.erase(found);
  }
  void copy_in(void* memory, std::int64_t offset, const void* from, std::int64_t bytes) override {
    std::vector<char>& block = memory_.at(memory);
    check(block, offset, bytes);
    std::memcpy(block.data() + offset, from, static_cast<std::size_t>(bytes));
    ++copies_in_;
  }
  void copy_out(const void* memory, std::int64_t offset, void* to,
                std::int64_t bytes) const override {
    const std::vector<char>& block = memory_.at(const_cast<void*>(memory));
    check(block, offset, bytes);
    std::memcpy(to, block.data() + offset, static_cast<std::size_t>(bytes));
  }
  std::int64_t free_bytes() const override { return capacity_ - held_; }

  std::int64_t held() const { return held_; }
  int copies_in() const { return copies_in_; }
  int bad_frees() const { return bad_frees_; }

 private:
  static void check(const std::vector<char>& block, std::int64_t offset, std::int64_t bytes) {
    require(offset >= 0 && bytes >= 0 && offset + bytes <= static_cast<std::int64_t>(block.size()),
            "a copy stays inside its allocation");
  }

  std::int64_t capacity_;
  std::int64_t held_ = 0;
  std::uintptr_t next_ = 8;
  int copies_in_ = 0;
  int bad_frees_ = 0;
  std::map<void*, std::vector<char>> memory_;
};

}  // namespace fedhpc::testing
