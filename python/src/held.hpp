#pragma once

#include <memory>
#include <stdexcept>
#include <utility>

namespace fedhpc::python {

/// The time in which Python may use something of the engine's.
class Time {
 public:
  /// `sentence`, a literal, refuses what comes too late.
  explicit Time(const char* sentence, bool over = false) : sentence_(sentence), over_(over) {}

  void end() { over_ = true; }
  void go_on() { over_ = false; }
  bool is_over() const { return over_; }
  void check() const {
    if (over_) throw std::runtime_error(sentence_);
  }

 private:
  const char* sentence_;
  bool over_;
};

using TimePtr = std::shared_ptr<Time>;

inline TimePtr time_of(const char* sentence) { return std::make_shared<Time>(sentence); }

/// Sets a flag until its own end, however that comes.
class Flagged {
 public:
  explicit Flagged(bool& flag) : flag_(flag) { flag_ = true; }
  ~Flagged() { flag_ = false; }
  Flagged(const Flagged&) = delete;
  Flagged& operator=(const Flagged&) = delete;

 private:
  bool& flag_;
};

/// Ends a time when a call of Python code is over, however it ends.
class During {
 public:
  explicit During(TimePtr time) : time_(std::move(time)) {}
  ~During() { time_->end(); }
  During(const During&) = delete;
  During& operator=(const During&) = delete;

 private:
  TimePtr time_;
};

/// Something of the engine's that Python holds for its time.
template <typename T>
class Held {
 public:
  Held(T& thing, TimePtr time) : thing_(&thing), time_(std::move(time)) {}

  T& operator*() const {
    time_->check();
    return *thing_;
  }
  T* operator->() const { return &**this; }
  const TimePtr& time() const { return time_; }

 private:
  T* thing_;
  TimePtr time_;
};

}  // namespace fedhpc::python
