#include "fixtures/device.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/to_device.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/coupling.hpp"
#include "fedhpc/rounds/device_row_memory.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/random_columns.hpp"

// Sums, stores and algebra between clients on a device equal those on the host.
namespace fedhpc::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

LayoutPtr layout_of(std::int64_t columns) {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {columns - 2}, columns, Tag::Trainable);
  layout->add("running", {2}, columns, Tag::Buffer);
  return layout;
}

/// Numbers of many magnitudes, others on every rank.
Tensor numbers(std::int64_t rows, std::int64_t columns, at::ScalarType type, int seed) {
  at::manual_seed(seed);
  return at::randn({rows, columns}, at::kDouble)
      .mul(at::randn({rows, columns}, at::kDouble).mul(6).exp2())
      .to(type);
}

double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = on_host(a).to(at::kDouble);
  const Tensor y = on_host(b).to(at::kDouble);
  return x.sub(y).abs().max().item<double>() / (1 + y.abs().max().item<double>());
}

class RoundsOnADevice : public DeviceRanksTest {
 protected:
  void SetUp() override {
    DeviceRanksTest::SetUp();
    if (!IsSkipped()) device_ = current_cuda_device();
  }

  Topology topology(Communicator& comm, std::int64_t edges = 0) const {
    const std::int64_t clients = std::max<std::int64_t>(edges, 2);
    return {comm, Placement(edges_of_clients(clients, edges, {}), edges, comm.size())};
  }

  at::Device device_ = at::kCPU;
};

/// The same rows summed on the host and on a device.
struct SumOnADevice : RoundsOnADevice {
  struct Sums {
    Tensor host;
    Tensor device;
  };

  Sums sums(Summation summation, at::ScalarType type, std::int64_t segments, bool finite = true,
            std::int64_t edges = 0, Among ranks = Among::All) {
    constexpr std::int64_t kColumns = 37;
    WeightedSum on_the_host(segments, kColumns, summation);
    WeightedSum on_a_device(segments, kColumns, summation, device_);
    for (int block = 0; block < 3; ++block) {
      const std::int64_t count = 4 + block;
      const Tensor rows = numbers(count, kColumns, type, 10 * block + host_->rank());
      std::vector<double> weights;
      std::vector<std::int64_t> of_rows;
      for (std::int64_t c = 0; c < count; ++c) {
        weights.push_back(c == 1 ? 0 : 1.0 + 7 * static_cast<double>(c));
        of_rows.push_back((c + block) % segments);
      }
      rows[1].fill_(kInfinity);  // of weight 0
      if (!finite) {
        rows[0][2].fill_(kInfinity);
        rows[0][3].fill_(std::nan(""));
        rows[2][2].fill_(-1);
      }
      on_the_host.add(of_rows, weights, rows);
      on_a_device.add(of_rows, weights, rows.to(device_));
    }
    Topology host_topology = topology(*host_, edges);
    Topology device_topology = topology(*device_ranks_, edges);
    const Tensor total = on_a_device.total(device_topology, ranks);
    EXPECT_TRUE(on_device(total));
    return {on_the_host.total(host_topology, ranks), on_host(total)};
  }
};

TEST_F(SumOnADevice, EqualsTheHostsToRounding) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t segments : {1, 3}) {
      const auto [host, device] = sums(Summation::Fast, type, segments);
      EXPECT_LT(distance(device, host), type == at::kFloat ? 1e-5 : 1e-13);
    }
  }
}

TEST_F(SumOnADevice, IsTheHostsBitForBitWhereItIsExact) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t segments : {1, 3}) {
      const auto [host, device] = sums(Summation::Reproducible, type, segments);
      EXPECT_TRUE(device.equal(host)) << segments;
      const auto [odd_host, odd_device] = sums(Summation::Reproducible, type, segments, false);
      EXPECT_TRUE(at::allclose(odd_device, odd_host, 0, 0, /*equal_nan=*/true)) << segments;
    }
  }
}

TEST_F(SumOnADevice, StaysWithinEdges) {
  for (const Summation summation : {Summation::Fast, Summation::Reproducible}) {
    const auto [host, device] = sums(summation, at::kDouble, 1, true, host_->size(), Among::Edge);
    EXPECT_LT(distance(device, host), 1e-13);
  }
}

TEST_F(SumOnADevice, OfNothingIsZero) {
  for (const Summation summation : {Summation::Fast, Summation::Reproducible}) {
    WeightedSum sum(2, 5, summation, device_);
    sum.add({}, {}, at::empty({0, 5}, at::TensorOptions(at::kFloat).device(device_)));
    Topology ranks = topology(*device_ranks_);
    EXPECT_TRUE(on_host(sum.total(ranks, Among::All)).equal(at::zeros({2, 6}, at::kDouble)));
  }
}

TEST_F(SumOnADevice, DoesNotWaitForTheDevice) {
  WeightedSum sum(1, 64, Summation::Fast, device_);
  const Tensor rows = numbers(3, 64, at::kFloat, 1).to(device_);
  const std::vector<std::int64_t> segments(3, 0);
  const std::vector<double> weights{1, 2, 3};
  sum.add(segments, weights, rows);
  const std::int64_t before = waits_for_device();
  sum.add(segments, weights, rows);
  EXPECT_EQ(waits_for_device(), before);
}

TEST_F(SumOnADevice, ThatIsGivenUpDoesNotWriteToMemoryOfTheNext) {
  const Tensor rows = at::ones({3, 64}, at::TensorOptions(at::kFloat).device(device_));
  const std::vector<std::int64_t> segments(3, 0);
  const std::vector<double> weights{1, 2, 3};
  Topology ranks = topology(*device_ranks_);
  for (int pass = 0; pass < 4; ++pass) {  // what is left then, the next may get
    WeightedSum given_up(1, 64, Summation::Fast, device_);
    given_up.add(segments, weights, rows);
  }
  on_host(rows);  // all that the main stream has freed is free
  WeightedSum sum(1, 64, Summation::Fast, device_);
  const Tensor total = sum.total(ranks, Among::All);
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  EXPECT_TRUE(on_host(total).equal(at::zeros({1, 65}, at::kDouble)));
}

TEST_F(SumOnADevice, TakesOverAnotherBehindWhatWasAdded) {
  const Tensor rows = at::ones({1, 64}, at::TensorOptions(at::kFloat).device(device_));
  const std::vector<std::int64_t> segments{0};
  Topology ranks = topology(*device_ranks_);
  WeightedSum sum(1, 64, Summation::Fast, device_);
  sum.add(segments, std::vector<double>{2}, rows);
  const std::shared_ptr<SumContents> two = sum.contents()->copy();
  sum.add(segments, std::vector<double>{5}, rows);
  sum.contents()->assign(*two);
  const double expected = 2.0 * device_ranks_->size();
  EXPECT_TRUE(
      on_host(sum.total(ranks, Among::All)).equal(at::full({1, 65}, expected, at::kDouble)));
}

TEST_F(RoundsOnADevice, MeansEqualTheHosts) {
  const LayoutPtr layout = layout_of(41);
  Stopwatch watch;
  Topology host_topology = topology(*host_);
  Topology device_topology = topology(*device_ranks_);
  for (const Summation summation : {Summation::Fast, Summation::Reproducible}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const MeanServices on_the_host{
          host_topology, layout, {.type = type, .summation = summation}, watch};
      const MeanServices on_a_device{device_topology,
                                     layout,
                                     {.type = type, .device = device_, .summation = summation},
                                     watch};
      const double bound = type == at::kFloat ? 1e-5 : 1e-13;
      const std::vector<double> weights{2, 0, 5};
      const Tensor rows = numbers(3, 41, type, 3 + host_->rank());
      Mean mean(on_the_host);
      mean.add(weights, {rows, layout});
      Mean device_mean(on_a_device);
      device_mean.add(weights, {rows.to(device_), layout});
      const Rows result = device_mean.reduce();
      EXPECT_TRUE(on_device(result.values));
      EXPECT_EQ(result.values.scalar_type(), type);
      EXPECT_LT(distance(result.values, mean.reduce().values), bound);

      const Tensor sent = at::rand({3, 41}).gt(0.6);
      const Tensor otherwise = numbers(1, 41, type, 99);
      ColumnMean columns(on_the_host);
      columns.add(weights, {rows, layout}, sent);
      ColumnMean device_columns(on_a_device);
      device_columns.add(weights, {rows.to(device_), layout}, sent.to(device_));
      EXPECT_LT(distance(device_columns.reduce({otherwise.to(device_), layout}).values,
                         columns.reduce({otherwise, layout}).values),
                bound);
    }
  }
  const Tensor nobody = at::zeros({2, 4}, at::TensorOptions(at::kDouble).device(device_));
  EXPECT_TRUE(on_host(quotients(nobody, at::kFloat)).equal(at::zeros({2, 3})));
}

/// A store on a device of which a few rows fit into the budget.
struct StoreOnADevice : RoundsOnADevice {
  static constexpr std::int64_t kColumns = 13;
  static constexpr std::int64_t kClients = 40;

  void SetUp() override {
    RoundsOnADevice::SetUp();
    if (IsSkipped()) return;
    clients_.resize(kClients);
    std::iota(clients_.begin(), clients_.end(), 3);
    layout_ = layout_of(kColumns);
    pinned_.emplace(gpu_library());
    memory_.emplace(device_, [] { return gpu_library().free_bytes(); });
    initial_ = {at::arange(kColumns, at::kFloat).reshape({1, kColumns}).to(device_), layout_};
  }

  Tensor random_rows(std::int64_t count, int seed) const {
    return numbers(count, kColumns, at::kFloat, seed).to(device_);
  }

  std::vector<std::int64_t> clients_;
  LayoutPtr layout_;
  std::optional<DeviceRowMemory> memory_;
  std::optional<PinnedRowMemory> pinned_;
  Rows initial_;
};

TEST_F(StoreOnADevice, ReadsWhatWasWrittenWhateverTheBudget) {
  const std::int64_t row = static_cast<std::int64_t>(initial_.values.nbytes());
  for (const std::int64_t budget : {std::int64_t{0}, row, 7 * row + 3, std::int64_t{1} << 30}) {
    ClientStore store(clients_, {budget}, &*memory_, *pinned_);
    StoredRows& rows = store.rows("v", initial_);
    Tensor expected = on_host(initial_.values).repeat({kClients, 1});
    for (int step = 0; step < 60; ++step) {
      at::manual_seed(step);
      const Tensor order = at::randperm(kClients, at::kLong);
      std::vector<std::int64_t> places(order.const_data_ptr<std::int64_t>(),
                                       order.const_data_ptr<std::int64_t>() + 1 + step % 9);
      if (step % 3 == 0) std::ranges::sort(places);  // side by side, some of them
      std::vector<std::int64_t> some;
      for (const std::int64_t place : places) {
        some.push_back(clients_[static_cast<std::size_t>(place)]);
      }
      if (step % 2 == 0) {
        const Tensor values = random_rows(std::ssize(some), step);
        rows.write(some, {values, layout_});
        expected.index_copy_(0, at::tensor(places), on_host(values));
      }
      const Rows read = rows.read(some);
      EXPECT_TRUE(on_device(read.values));
      EXPECT_TRUE(on_host(read.values).equal(expected.index_select(0, at::tensor(places))));
    }
    EXPECT_TRUE(on_host(rows.read(clients_).values).equal(expected));
    const std::int64_t written = std::ssize(rows.written_clients());
    const StoreBytes bytes = store.memory_bytes();
    EXPECT_GE(bytes.device - row, std::min(written, budget / row) * row);
    EXPECT_LE(bytes.device - row, budget);
    EXPECT_EQ(bytes.host > 0, budget / row < written);
    for (const std::int64_t client : clients_) {
      EXPECT_TRUE(on_host(rows.view(client).values)
                      .equal(expected.narrow(0, client - clients_.front(), 1)));
    }
    rows.clear();
    EXPECT_TRUE(
        on_host(rows.read(clients_).values).equal(on_host(initial_.values).repeat({kClients, 1})));
  }
}

TEST_F(StoreOnADevice, ReadsSomethingElseForThoseNeverWritten) {
  ClientStore store(clients_, {std::int64_t{60}}, &*memory_, *pinned_);
  StoredRows& rows = store.rows("v", initial_);
  const std::vector<std::int64_t> some{clients_[4], clients_[5], clients_[9]};
  const Tensor values = random_rows(3, 1);
  rows.write(some, {values, layout_});
  const std::vector<std::int64_t> mixed{clients_[3], clients_[4], clients_[5],
                                        clients_[6], clients_[7], clients_[9]};
  const Tensor others = random_rows(6, 2);
  const Tensor expected = on_host(others).clone();
  expected.narrow(0, 1, 2).copy_(on_host(values).narrow(0, 0, 2));
  expected[5].copy_(on_host(values)[2]);
  EXPECT_TRUE(on_host(rows.read(mixed, {others, layout_}).values).equal(expected));
  EXPECT_THROW(rows.write(some, {on_host(values), layout_}), std::logic_error);
}

TEST_F(StoreOnADevice, DoesNotWaitForTheDevice) {
  ClientStore store(clients_, {std::int64_t{200}}, &*memory_, *pinned_);
  StoredRows& rows = store.rows("v", initial_);
  const Tensor values = random_rows(kClients, 5);
  const std::int64_t before = waits_for_device();
  rows.write(clients_, {values, layout_});
  const Rows read = rows.read(clients_);
  EXPECT_EQ(waits_for_device(), before);
  EXPECT_TRUE(on_host(read.values).equal(on_host(values)));
}

TEST_F(StoreOnADevice, GoesThroughRowsTogether) {
  ClientStore store(clients_, {std::int64_t{200}}, &*memory_, *pinned_);
  StoredRows& there = store.rows("there", initial_);
  StoredRows& here = store.rows("here", {on_host(initial_.values), layout_});
  const std::vector<std::int64_t> places{5, 2, 9};
  std::vector<std::size_t> portions;
  const auto count = [&](std::span<const std::int64_t> some) { portions.push_back(some.size()); };
  there.each_portion(places, count);
  here.each_portion(places, count);
  there.each_portion({}, count);
  EXPECT_EQ(portions, (std::vector<std::size_t>{3, 1, 1, 1}));
  const std::vector<std::int64_t> some{clients_[3], clients_[8]};
  there.write(some, {random_rows(2, 7), layout_});
  EXPECT_TRUE(on_host(there.view(some).values).equal(on_host(there.read(some).values)));
}

TEST_F(RoundsOnADevice, CodecsTakeRowsThereAndBack) {
  const Tensor values = numbers(3, 50, at::kFloat, 3);
  values.masked_fill_(values.abs().lt(0.5), 0);
  for (const std::string& name : codec_registry().names()) {
    const std::unique_ptr<Codec> codec = CodecChoice{.name = name, .k = 4}.make();
    const Tensor here = values.clone();
    const Tensor there = values.clone().to(device_);
    EXPECT_EQ(codec->encoded_bytes(there), codec->encoded_bytes(here)) << name;
    const std::int64_t before = waits_for_device();
    EXPECT_EQ(codec->transmit_(there), codec->transmit_(here)) << name;
    EXPECT_TRUE(!codec->linear(at::kFloat) || waits_for_device() == before) << name;
    EXPECT_TRUE(on_host(there).equal(here)) << name;
  }
}

TEST_F(StoreOnADevice, GivesRowsToTheHostAsWell) {
  // Memory of a device for rows of the host.
  ClientStore store(clients_, {std::int64_t{200}}, &*memory_, *pinned_);
  const Rows initial{on_host(initial_.values), layout_};
  StoredRows& rows = store.rows("v", initial);
  const Tensor values = on_host(random_rows(kClients, 5));
  rows.write(clients_, {values, layout_});
  EXPECT_TRUE(rows.read(clients_).values.equal(values));
  EXPECT_TRUE(rows.view(clients_[1]).values.equal(values.narrow(0, 1, 1)));
}

TEST_F(RoundsOnADevice, AlgebraBetweenClientsEqualsTheHosts) {
  const LayoutPtr layout = layout_of(301);
  const ColumnRanges columns{{0, 7}, {20, 299}};
  // Clients dealt out in turn, so that the order of ranks is not theirs.
  constexpr std::int64_t kAll = 7;
  std::vector<std::int64_t> ids;
  for (std::int64_t i = kAll - 1 - host_->rank(); i >= 0; i -= host_->size()) ids.push_back(i);
  const Coupling host(*host_, ids);
  const Coupling device(*device_ranks_, ids);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    at::manual_seed(2);
    const Tensor all = at::randn({kAll, 301}, at::kDouble).to(type);
    Rows rows{all.index_select(0, at::tensor(ids)), layout};
    const Rows moved{rows.values.to(device_), layout};
    const Rows reference{all.narrow(0, 2, 1), layout};
    const Rows moved_reference{reference.values.to(device_), layout};
    EXPECT_LT(distance(device.squared_distances(moved, moved, columns),
                       host.squared_distances(rows, rows, columns)),
              1e-12);
    EXPECT_LT(distance(device.dots(moved, moved, columns, moved_reference),
                       host.dots(rows, rows, columns, reference)),
              1e-12);
    const Tensor coefficients = at::rand({kAll, kAll}, at::kDouble);
    coefficients[0].zero_();
    coefficients[1][3].zero_();
    const double bound = type == at::kFloat ? 1e-6 : 1e-13;
    EXPECT_LT(distance(device.mix(coefficients, moved).values, host.mix(coefficients, rows).values),
              bound);
    const Rows approached = device.approach(coefficients.div(10), moved);
    EXPECT_TRUE(on_device(approached.values));
    EXPECT_LT(distance(approached.values, host.approach(coefficients.div(10), rows).values), bound);
    const Tensor turned = device.to_columns(moved);
    EXPECT_TRUE(on_device(turned));
    EXPECT_TRUE(on_host(turned).equal(host.to_columns(rows)));
    const Rows back{at::zeros_like(moved.values), layout};
    device.from_columns_(back, turned);
    EXPECT_TRUE(on_host(back.values).equal(rows.values));
    EXPECT_TRUE(on_host(device.all_rows(moved.values)).equal(all));
    // What a coefficient of 0 leaves out may be anything.
    if (!ids.empty() && ids.front() == kAll - 1) moved.values[0].fill_(std::nan(""));
    const Tensor without = coefficients.clone();
    without.select(1, kAll - 1).zero_();
    EXPECT_TRUE(on_host(device.mix(without, moved).values).isfinite().all().item<bool>());
  }
}

TEST_F(RoundsOnADevice, UploadsWithoutWaiting) {
  const std::vector<std::int64_t> some{3, 1, 2};
  const std::vector<double> none;
  const Tensor mask = at::rand({4, 5}).gt(0.5);
  const std::int64_t before = waits_for_device();
  const Tensor integers = to_device(some, device_);
  const Tensor empty = to_device(none, device_);
  const Tensor moved = to_device(mask, device_);
  EXPECT_EQ(waits_for_device(), before);
  EXPECT_TRUE(on_host(integers).equal(at::tensor(some)));
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(on_device(empty));
  EXPECT_TRUE(on_host(moved).equal(mask));
  EXPECT_TRUE(to_device(mask, at::kCPU).is_same(mask));
}

}  // namespace
}  // namespace fedhpc::testing
