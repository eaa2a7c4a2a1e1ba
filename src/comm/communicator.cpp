#include "fedhpc/comm/communicator.hpp"

#include <ATen/ops/empty.h>

namespace fedhpc {

namespace {

class NothingToDeliver final : public Delivery {
 public:
  bool advance() override { return true; }
  std::vector<Tensor> finish() override { return {}; }
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator() = default;
  explicit LocalCommunicator(std::unique_ptr<Communicator> part) : part_(std::move(part)) {
    require(part_->size() == 1, "a rank alone");
  }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void sum_(Tensor& values) override { count(values); }
  void max_(Tensor& values) override { count(values); }
  void broadcast_(Tensor& values, int) override { count(values); }
  Tensor gather(const Tensor& rows, int) override {
    count(rows);
    return rows;
  }
  Tensor all_gather(const Tensor& rows) override {
    count(rows);
    return rows;
  }
  std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) override {
    require(parts.size() == 1, "all_to_all takes one part per rank");
    count(parts);
    return parts;
  }
  std::vector<std::string> all_texts(const std::string& text) override { return {text}; }
  void barrier() override {}
  std::unique_ptr<Delivery> deliver(std::vector<Parcel> outgoing,
                                    std::vector<int> senders) override {
    require(outgoing.empty() && senders.empty(), "a process alone sends nothing to others");
    return std::make_unique<NothingToDeliver>();
  }
  std::unique_ptr<SharedMemory> share(std::int64_t) override { return nullptr; }
  std::vector<int> hosts() override { return {0}; }
  std::unique_ptr<Communicator> split(int colour) override {
    if (colour == kNoPart) return nullptr;
    if (part_) return alone_in(part_->split(colour));
    auto part = std::make_unique<LocalCommunicator>();
    part->place_ = place_;
    return part;
  }
  void progress() override {
    if (part_) part_->progress();
  }
  Place& place() override { return part_ ? part_->place() : *place_; }
  double seconds_waited() const override { return part_ ? part_->seconds_waited() : 0; }

 private:
  std::unique_ptr<Communicator> part_;
  std::shared_ptr<Place> place_ = std::make_shared<Place>();
};

}  // namespace

void Communicator::count(const Tensor& values) {
  ++traffic_.collectives;
  traffic_.bytes += static_cast<std::int64_t>(values.nbytes());
}

void Communicator::count(const std::vector<Tensor>& parts) {
  ++traffic_.collectives;
  for (const Tensor& part : parts) traffic_.bytes += static_cast<std::int64_t>(part.nbytes());
}

std::unique_ptr<Communicator> local_communicator() { return std::make_unique<LocalCommunicator>(); }

std::unique_ptr<Communicator> alone_in(std::unique_ptr<Communicator> part) {
  return std::make_unique<LocalCommunicator>(std::move(part));
}

void fail_together(Communicator& comm, const std::function<void()>& work) {
  // The first character says which type of error to throw again; an empty text means success.
  std::string failure;
  try {
    work();
  } catch (const ConfigError& error) {
    failure = std::string("c") + error.what();
  } catch (const DataError& error) {
    failure = std::string("d") + error.what();
  }
  for (const std::string& text : comm.all_texts(failure)) {
    if (text.starts_with('c')) throw ConfigError(text.substr(1));
    if (text.starts_with('d')) throw DataError(text.substr(1));
  }
}

}  // namespace fedhpc
