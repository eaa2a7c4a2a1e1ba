#include "fedhpc/rounds/client_store.hpp"

#include <map>
#include <utility>

#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

#include "rounds/fake_device.hpp"

namespace fedhpc {
namespace {

using testing::FakeDevice;

constexpr std::int64_t kColumns = 13;
constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

LayoutPtr layout_of(std::int64_t columns) {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {columns}, columns, Tag::Trainable);
  return layout;
}

Rows initial_row(const LayoutPtr& layout, at::ScalarType type) {
  return {at::arange(layout->size(), type).reshape({1, layout->size()}), layout};
}

std::int64_t bytes_of(const Rows& rows) { return static_cast<std::int64_t>(rows.values.nbytes()); }

std::vector<std::int64_t> every_third(std::int64_t count) {
  std::vector<std::int64_t> clients;
  for (std::int64_t i = 0; i < count; ++i) clients.push_back(5 + 3 * i);
  return clients;
}

/// Goes through 200 random reads and writes and compares each with a map; gives all rows at the
/// end.
Tensor exercise(StoredRows& rows, const std::vector<std::int64_t>& clients) {
  std::map<std::int64_t, Tensor> oracle;
  const auto expected = [&](std::int64_t client) {
    const auto found = oracle.find(client);
    return found == oracle.end() ? rows.initial().values : found->second;
  };
  for (std::int64_t step = 0; step < 200; ++step) {
    const auto count = static_cast<std::int64_t>(clients.size());
    // A prefix of a permutation: some clients, in random order; the first one twice.
    std::vector<std::int64_t> chosen = permutation_prefix(
        {.seed = 3, .purpose = Purpose::Cohort, .round = static_cast<std::uint64_t>(step)}, count,
        1 + step % 5);
    for (std::int64_t& client : chosen) client = clients[static_cast<std::size_t>(client)];
    chosen.push_back(chosen.front());
    if (step % 2 == 0) {
      const auto width = static_cast<std::int64_t>(chosen.size());
      const Tensor values = at::arange(width * kColumns, rows.type())
                                .add(static_cast<double>(1000 * step))
                                .reshape({width, kColumns});
      rows.write(chosen, {values, rows.layout()});
      for (std::size_t c = 0; c < chosen.size(); ++c) {
        const auto row = static_cast<std::int64_t>(c);
        oracle[chosen[c]] = values.narrow(0, row, 1);
      }
    }
    const Rows read = rows.read(chosen);
    for (std::size_t c = 0; c < chosen.size(); ++c) {
      const auto row = static_cast<std::int64_t>(c);
      EXPECT_TRUE(read.values.narrow(0, row, 1).equal(expected(chosen[c]))) << step;
    }
  }
  std::vector<std::int64_t> written;
  for (const auto& [client, row] : oracle) written.push_back(client);
  EXPECT_EQ(rows.written_clients(), written);
  std::vector<Tensor> all;
  for (const std::int64_t client : clients) {
    EXPECT_EQ(rows.written(client), oracle.contains(client));
    all.push_back(expected(client));
  }
  const Tensor stored = rows.read(clients).values;
  EXPECT_TRUE(stored.equal(at::cat(all)));
  return stored;
}

class ClientStoreTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  const LayoutPtr layout_ = layout_of(kColumns);
  const Rows initial_ = initial_row(layout_, GetParam());
  const std::vector<std::int64_t> clients_ = every_third(60);
};

TEST_P(ClientStoreTest, ReadsWhatWasWrittenWhateverTheBudget) {
  ClientStore in_host_memory(clients_);
  const Tensor expected = exercise(in_host_memory.rows("v", initial_), clients_);
  const std::int64_t row = bytes_of(initial_);
  for (const std::int64_t budget : {std::int64_t{0}, row - 1, row, 7 * row + 3, kPlenty}) {
    FakeDevice device(kPlenty);
    {
      ClientStore store(clients_, {budget}, &device);
      EXPECT_TRUE(exercise(store.rows("v", initial_), clients_).equal(expected)) << budget;
      EXPECT_LE(device.held(), budget);
      EXPECT_EQ(device.held(), store.memory_bytes().device);
      EXPECT_EQ(device.copies_in() > 0, budget >= row);
      const std::int64_t written = std::ssize(store.rows("v").written_clients());
      EXPECT_GE(device.held(), std::min(written, budget / row) * row);  // no budget is left unused
    }
    EXPECT_EQ(device.held(), 0);
    EXPECT_EQ(device.bad_frees(), 0);
  }
}

TEST_P(ClientStoreTest, RowsAreSeenWhereTheyLieOrAsCopies) {
  const std::int64_t row = bytes_of(initial_);
  FakeDevice device(kPlenty);
  ClientStore store(clients_, {2 * row}, &device);  // room for two of three rows
  StoredRows& rows = store.rows("v", initial_);
  const std::vector<std::int64_t> some{clients_[1], clients_[4], clients_[7]};
  const Tensor values = at::arange(3 * kColumns, GetParam()).reshape({3, kColumns});
  rows.write(some, {values, layout_});
  ASSERT_EQ(device.held(), 2 * row);
  for (std::size_t c = 0; c < some.size(); ++c) {
    const Rows seen = rows.view(some[c]);
    EXPECT_TRUE(seen.values.equal(values.narrow(0, static_cast<std::int64_t>(c), 1))) << c;
    const bool is_copy = seen.values.const_data_ptr() != rows.view(some[c]).values.const_data_ptr();
    EXPECT_EQ(is_copy, c < 2) << c;  // the device's rows
  }
  EXPECT_TRUE(rows.view(clients_[0]).values.equal(initial_.values));  // never written
}

TEST_P(ClientStoreTest, SpillsWhenTheDeviceIsFull) {
  const std::int64_t row = bytes_of(initial_);
  FakeDevice device(5 * row);  // holds less than the budget allows
  ClientStore store(clients_, {kPlenty}, &device);
  StoredRows& rows = store.rows("v", initial_);
  const Tensor values = at::arange(60 * kColumns, GetParam()).reshape({60, kColumns});
  rows.write(clients_, {values, layout_});
  EXPECT_TRUE(rows.read(clients_).values.equal(values));
  EXPECT_GT(store.memory_bytes().device, 0);
  EXPECT_GE(store.memory_bytes().host, 55 * row);
}

TEST_P(ClientStoreTest, SharesTheBudgetBetweenNames) {
  const std::int64_t row = bytes_of(initial_);
  FakeDevice device(kPlenty);
  ClientStore store(clients_, {2 * row}, &device);
  const std::vector<std::int64_t> two{clients_[0], clients_[1]};
  store.rows("a", initial_).write(two, initial_.replicate(2));
  store.rows("b", initial_).write(two, initial_.replicate(2));
  EXPECT_EQ(store.rows("a").memory_bytes().device, 2 * row);
  EXPECT_EQ(store.rows("b").memory_bytes().device, 0);
  // What one name gives back, another can have.
  store.rows("a").clear();
  store.rows("b").clear();
  EXPECT_EQ(device.held(), 0);
  store.rows("b").write(two, initial_.replicate(2));
  EXPECT_EQ(store.rows("b").memory_bytes().device, 2 * row);
}

TEST_P(ClientStoreTest, TakesHalfOfTheDeviceByItself) {
  const std::int64_t row = bytes_of(initial_);
  FakeDevice device(20 * row);
  ClientStore store(clients_, {}, &device);
  store.rows("v", initial_).write(clients_, initial_.replicate(60));
  EXPECT_EQ(device.held(), 10 * row);
}

TEST_P(ClientStoreTest, CostsTheRowsThatWereWritten) {
  const std::vector<std::int64_t> many = every_third(10000);
  ClientStore store(many);
  StoredRows& rows = store.rows("v", initial_);
  const std::int64_t row = bytes_of(initial_);
  EXPECT_EQ(rows.memory_bytes().host, row);  // the initial one
  const std::vector<std::int64_t> three{many[9999], many[0], many[77]};
  rows.write(three, initial_.replicate(3));
  EXPECT_EQ(rows.memory_bytes().host, (3 + 1) * row);
  rows.write(three, initial_.replicate(3));
  EXPECT_EQ(rows.memory_bytes().host, (3 + 1) * row);
  rows.read(many);
  EXPECT_EQ(rows.memory_bytes().host, (3 + 1) * row);
  // At most an eighth is spare, and nothing once every client is written.
  for (std::int64_t i = 0; i < 10000; ++i) {
    const std::vector<std::int64_t> one{many[static_cast<std::size_t>(i)]};
    rows.write(one, initial_);
    // Positions 0, 77 and 9999 were written before.
    const std::int64_t written = i + 1 + (i < 77 ? 1 : 0) + (i < 9999 ? 1 : 0);
    EXPECT_LE(rows.memory_bytes().host, (1 + written + written / 8) * row);
  }
  EXPECT_EQ(rows.memory_bytes().host, (10000 + 1) * row);
  EXPECT_EQ(store.full_bytes(), (10000 + 1) * row);
  rows.clear();
  EXPECT_EQ(rows.memory_bytes().host, row);
  EXPECT_TRUE(rows.read(three).values.equal(initial_.replicate(3).values));
  EXPECT_TRUE(rows.written_clients().empty());
}

TEST_P(ClientStoreTest, KeepsNoTiesToTheCallersTensors) {
  ClientStore store(clients_);
  Rows first = initial_.clone();
  StoredRows& rows = store.rows("v", first);
  first.values.zero_();
  const std::vector<std::int64_t> one{clients_[4]};
  EXPECT_TRUE(rows.read(one).values.equal(initial_.values));
  // A view with gaps is written as what it shows.
  const Tensor wide = at::arange(2 * kColumns, GetParam()).reshape({kColumns, 2});
  rows.write(one, {wide.t().narrow(0, 1, 1), layout_});
  const Rows read = rows.read(one);
  EXPECT_TRUE(read.values.equal(wide.t().narrow(0, 1, 1)));
  read.values.zero_();
  EXPECT_TRUE(rows.read(one).values.equal(wide.t().narrow(0, 1, 1)));
}

TEST_P(ClientStoreTest, ReadsSomethingElseForThoseNeverWritten) {
  ClientStore store(clients_);
  StoredRows& rows = store.rows("v", initial_);
  const Rows otherwise{initial_.values.add(100), layout_};
  const Tensor written = initial_.values.mul(-1);
  const std::vector<std::int64_t> mixed{clients_[9], clients_[2], clients_[9], clients_[5]};
  rows.write(std::vector{clients_[2], clients_[7]}, {written.repeat({2, 1}), layout_});
  const std::int64_t bytes = rows.memory_bytes().host;
  const auto expect = [&](const Rows& stand_in, const Tensor& read) {
    EXPECT_TRUE(read.equal(at::cat({stand_in.values, written, stand_in.values, stand_in.values})));
  };
  const Rows read = rows.read(mixed, otherwise);
  EXPECT_EQ(read.layout, layout_);
  expect(otherwise, read.values);
  expect(initial_, rows.read(mixed).values);
  // Reading leaves no trace, nor do the rows read keep ties.
  read.values.zero_();
  expect(otherwise, rows.read(mixed, otherwise).values);
  EXPECT_EQ(rows.memory_bytes().host, bytes);
  EXPECT_EQ(rows.written_clients(), (std::vector{clients_[2], clients_[7]}));
  rows.clear();
  EXPECT_TRUE(rows.read(mixed, otherwise).values.equal(otherwise.replicate(4).values));

  EXPECT_THROW(rows.read(mixed, otherwise.replicate(2)), std::logic_error);
  EXPECT_THROW(rows.read(mixed, initial_row(layout_of(kColumns), GetParam())), std::logic_error);
  const at::ScalarType other = GetParam() == at::kFloat ? at::kDouble : at::kFloat;
  EXPECT_THROW(rows.read(mixed, initial_row(layout_, other)), std::logic_error);
  EXPECT_THROW(rows.read(std::vector<std::int64_t>{6}, otherwise), std::logic_error);
}

TEST_P(ClientStoreTest, RefusesStrangersAndOtherShapes) {
  ClientStore store(clients_);
  StoredRows& rows = store.rows("v", initial_);
  const std::vector<std::int64_t> stranger{6};
  const std::vector<std::int64_t> two{clients_[0], clients_[1]};
  EXPECT_THROW(rows.read(stranger), std::logic_error);
  EXPECT_THROW(rows.write(stranger, initial_), std::logic_error);
  EXPECT_THROW(rows.written(6), std::logic_error);
  EXPECT_THROW(rows.write(two, initial_), std::logic_error);
  EXPECT_THROW(rows.write(two, initial_row(layout_of(kColumns), GetParam()).replicate(2)),
               std::logic_error);
  EXPECT_THROW(store.rows("v", initial_row(layout_of(3), GetParam())), std::logic_error);
  EXPECT_THROW(store.rows("v", initial_), std::logic_error) << "two owners of one memory";
  EXPECT_THROW(store.rows("w"), std::logic_error);
  EXPECT_THROW(store.scalars("w"), std::logic_error);
  EXPECT_THROW(ClientStore({3, 3}), std::logic_error);
  EXPECT_THROW(ClientStore({3, 2}), std::logic_error);
}

TEST_P(ClientStoreTest, CopiesIntoAnotherStoreNameByName) {
  ClientStore store(clients_);
  store.rows("b", initial_).write(std::vector{clients_[7], clients_[2]}, initial_.replicate(2));
  store.rows("a", initial_);
  store.scalars("steps", 0).write(clients_[3], 4);
  EXPECT_EQ(store.row_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(store.scalar_names(), std::vector<std::string>{"steps"});

  ClientStore copy(clients_);
  for (const std::string& name : store.row_names()) {
    const StoredRows& from = store.rows(name);
    const std::vector<std::int64_t> written = from.written_clients();
    copy.rows(name, from.initial()).write(written, from.read(written));
    EXPECT_EQ(copy.rows(name).written_clients(), written);
    EXPECT_TRUE(copy.rows(name).read(clients_).values.equal(from.read(clients_).values));
  }
  const std::vector<std::int64_t> written = store.scalars("steps").written_clients();
  EXPECT_EQ(written, std::vector{clients_[3]});
  copy.scalars("steps", 0).write(written, store.scalars("steps").read(written));
  EXPECT_EQ(copy.scalars("steps").read(clients_), store.scalars("steps").read(clients_));
}

INSTANTIATE_TEST_SUITE_P(Types, ClientStoreTest, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& one) { return std::string(c10::toString(one.param)); });

TEST(ClientStore, ServesARankWithoutClients) {
  ClientStore store(std::vector<std::int64_t>{});
  const LayoutPtr layout = layout_of(4);
  StoredRows& rows = store.rows("v", {at::zeros({1, 4}), layout});
  EXPECT_EQ(rows.read({}).values.sizes().vec(), (std::vector<std::int64_t>{0, 4}));
  rows.write({}, {at::zeros({0, 4}), layout});
  EXPECT_TRUE(rows.written_clients().empty());
}

TEST(ScalarColumn, KeepsOneNumberPerClient) {
  const std::vector<std::int64_t> clients{2, 3, 50};
  ClientStore store(clients);
  ScalarColumn& column = store.scalars("age", -1.5);
  EXPECT_EQ(column.read(clients), (std::vector<double>{-1.5, -1.5, -1.5}));
  EXPECT_EQ(store.memory_bytes().host, 0);
  column.write(50, 1e300);
  column.write(std::vector<std::int64_t>{3, 50}, std::vector<double>{0.1, 7});
  EXPECT_EQ(column.read(clients), (std::vector<double>{-1.5, 0.1, 7}));
  EXPECT_EQ(column.written_clients(), (std::vector<std::int64_t>{3, 50}));
  EXPECT_FALSE(column.written(2));
  EXPECT_TRUE(column.written(3));
  EXPECT_EQ(store.memory_bytes().host, 3 * 8 + 1);
  EXPECT_EQ(&store.scalars("age", 9), &column);
  EXPECT_EQ(column.initial(), -1.5);
  EXPECT_THROW(column.read(4), std::logic_error);
  EXPECT_THROW(column.write(4, 1), std::logic_error);
  EXPECT_THROW(column.write(clients, std::vector<double>{1}), std::logic_error);
  column.clear();
  EXPECT_EQ(column.read(clients), (std::vector<double>{-1.5, -1.5, -1.5}));
  EXPECT_TRUE(column.written_clients().empty());
}

TEST(MemoryBlock, FreesOnce) {
  FakeDevice device(kPlenty);
  {
    MemoryBlock first(device, 8);
    MemoryBlock second(std::move(first));
    EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_EQ(second.bytes(), 8);
    MemoryBlock third(device, 4);
    third = std::move(second);
    EXPECT_EQ(device.held(), 8);
    MemoryBlock& same = third;
    third = std::move(same);
    EXPECT_FALSE(third.empty());
    EXPECT_EQ(device.held(), 8);
  }
  EXPECT_EQ(device.held(), 0);
  EXPECT_EQ(device.bad_frees(), 0);
}

TEST(MemoryBlock, IsEmptyWhenNothingIsLeft) {
  FakeDevice device(10);
  const MemoryBlock block(device, 11);
  EXPECT_TRUE(block.empty());
  EXPECT_EQ(block.bytes(), 0);
}

TEST(ClientStore, GuestsBringTheirStateAndLeaveNoTrace) {
  const LayoutPtr layout = layout_of(kColumns);
  ClientStore home({1, 4, 6});
  ClientStore other({2, 3});
  for (ClientStore* store : {&home, &other}) {
    store->rows("model", initial_row(layout, at::kFloat));
    store->rows("unused", initial_row(layout, at::kDouble));
    store->scalars("number", 5);
  }
  const auto row = [&](double value) {
    return Rows{at::full({1, kColumns}, value, at::kFloat), layout};
  };
  using Ids = std::vector<std::int64_t>;
  home.rows("model").write(Ids{4}, row(40));
  home.scalars("number").write(6, 60);
  EXPECT_EQ(home.bytes_of_client(), kColumns * (4 + 8) + 8);
  const Ids guests{4, 6};
  const Tensor packed = home.pack(guests);
  EXPECT_EQ(packed.numel(), 6 + 4 * kColumns + 8) << "who has what, a row and a number";
  other.take_in(guests);
  other.unpack(guests, packed.const_data_ptr());
  EXPECT_TRUE(other.rows("model").view(4).values.equal(row(40).values));
  EXPECT_FALSE(other.rows("model").written(6));
  EXPECT_EQ(other.scalars("number").read(Ids{4, 6}), (std::vector<double>{5, 60}));
  EXPECT_THROW(other.rows("model").read(Ids{1}), std::logic_error) << "neither its own nor a guest";
  other.rows("model").write(Ids{6, 2}, {at::full({2, kColumns}, 7, at::kFloat), layout});
  other.scalars("number").write(4, 44);
  const Tensor back = other.pack(guests);
  other.take_in({});
  home.unpack(guests, back.const_data_ptr());
  EXPECT_TRUE(home.rows("model").view(6).values.equal(row(7).values));
  EXPECT_EQ(home.scalars("number").read(Ids{1, 4, 6}), (std::vector<double>{5, 44, 60}));
  EXPECT_EQ(other.rows("model").written_clients(), Ids{2});
  EXPECT_TRUE(other.scalars("number").written_clients().empty());
  // Memory of those who left is taken by the next ones.
  const std::int64_t bytes = other.memory_bytes().host;
  for (std::int64_t guest = 10; guest < 30; guest += 2) {
    other.take_in({guest, guest + 1});
    EXPECT_FALSE(other.rows("model").written(guest));
    EXPECT_EQ(other.scalars("number").read(guest), 5);
    other.rows("model").write(Ids{guest, guest + 1},
                              {at::full({2, kColumns}, 9, at::kFloat), layout});
    other.scalars("number").write(guest, 9);
    EXPECT_LE(other.memory_bytes().host, bytes + kColumns * 4);
  }
  other.take_in({});
  EXPECT_TRUE(other.rows("model").view(2).values.equal(row(7).values));
  other.rows("model").write(Ids{3}, row(3));
  EXPECT_TRUE(other.rows("model").view(2).values.equal(row(7).values));
  EXPECT_THROW(other.take_in({3}), std::logic_error) << "its own";
}

}  // namespace
}  // namespace fedhpc
