#include "engine/state_file.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "engine/state_copy.hpp"
#include "fixtures/resumed_run.hpp"

namespace fedhpc::testing {
namespace {

constexpr std::int64_t kClients = 9;
constexpr std::int64_t kEdges = 3;

LayoutPtr layout_of(std::int64_t width) {
  Layout layout;
  layout.add("w", {width}, 1, Tag::Trainable);
  return std::make_shared<const Layout>(std::move(layout));
}

/// State of every kind on the ranks of one communicator; values tell where they belong.
struct Everything {
  Placement placement;
  LayoutPtr layout = layout_of(5);
  Tensor tensor = at::arange(6, at::kLong).view({2, 3});
  Rows rows{at::arange(10, at::kFloat).view({2, 5}), layout};
  EdgeRows edges;
  ClientStore store;
  double number = 0.1;
  std::int64_t integer = -7;

  explicit Everything(Communicator& comm)
      : placement(edges_of_clients(kClients, kEdges, {}), kEdges, comm.size()),
        store(placement.clients_of_rank(comm.rank())) {
    const Range mine = placement.edges_of_rank(comm.rank());
    edges = {Rows{at::zeros({mine.size(), 5}, at::kDouble), layout}, mine.first};
    store.rows("personal", Rows{at::zeros({1, 5}, at::kFloat), layout});
    store.rows("untouched", Rows{at::zeros({1, 5}, at::kDouble), layout});
    store.scalars("age", 0.5);
  }

  /// Client 4 has no row and client 0 no number.
  void fill() {
    for (std::int64_t i = 0; i < edges.count(); ++i) {
      edges.rows.values[i].fill_(100.0 + static_cast<double>(edges.first + i));
    }
    for (const std::int64_t client : store.clients()) {
      const std::vector<std::int64_t> one{client};
      if (client != 4)
        store.rows("personal").write(one, {at::full({1, 5}, client + 1, at::kFloat), layout});
      if (client != 0) store.scalars("age").write(client, static_cast<double>(client) / 3);
    }
  }

  void visit(StateVisitor& state) {
    state.tensor("tensor", tensor);
    state.rows("rows", rows);
    state.edges("edges", edges);
    state.clients(store);
    state.number("number", number);
    state.integer("integer", integer);
  }

  void expect_filled() {
    EXPECT_TRUE(tensor.equal(at::arange(6, at::kLong).view({2, 3})));
    EXPECT_TRUE(rows.values.equal(at::arange(10, at::kFloat).view({2, 5})));
    EXPECT_EQ(number, 0.1);
    EXPECT_EQ(integer, -7);
    for (std::int64_t i = 0; i < edges.count(); ++i) {
      EXPECT_EQ(edges.rows.values[i][4].item<double>(),
                100.0 + static_cast<double>(edges.first + i));
    }
    for (const std::int64_t client : store.clients()) {
      const std::vector<std::int64_t> one{client};
      EXPECT_EQ(store.rows("personal").written(client), client != 4);
      EXPECT_EQ(store.rows("personal").read(one).values[0][3].item<double>(),
                client == 4 ? 0 : client + 1);
      EXPECT_EQ(store.scalars("age").read(client),
                client == 0 ? 0.5 : static_cast<double>(client) / 3);
      EXPECT_FALSE(store.rows("untouched").written(client));
    }
  }

  void spoil() {
    tensor = at::zeros({1}, at::kLong);
    rows.values.fill_(-1);
    edges.rows.values.fill_(-1);
    number = 0;
    integer = 0;
    for (const std::int64_t client : store.clients()) {
      const std::vector<std::int64_t> one{client};
      store.rows("personal").write(one, {at::full({1, 5}, -1, at::kFloat), layout});
      store.rows("untouched").write(one, {at::full({1, 5}, -1, at::kDouble), layout});
      store.scalars("age").write(client, -1);
    }
  }
};

class StateFileTest : public ::testing::Test {
 protected:
  void save(Everything& state) {
    h5::Handle file;
    if (world_->rank() == 0) {
      file = h5::open_file(path_, h5::Mode::Create);
      h5::create_group(file, "/state");
    }
    StateWriter writer(*world_, state.placement, file ? &file : nullptr);
    state.visit(writer);
    file.reset();
    world_->barrier();
  }

  std::string check(Everything& state) const {
    const h5::Handle file = h5::open_whole(path_);
    StateCheck check(file, path_, state.placement);
    try {
      state.visit(check);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  SharedFolder folder_{*world_};
  const std::string path_ = folder_.file("state.h5");
};

TEST_F(StateFileTest, EverythingComesBackOnTheSameRanks) {
  Everything state(*world_);
  state.fill();
  save(state);
  EXPECT_EQ(check(state), "");
  state.spoil();
  h5::Handle file;
  if (world_->rank() == 0) file = h5::open_whole(path_);
  StateReader reader(*world_, file ? &file : nullptr);
  state.visit(reader);
  state.expect_filled();
}

TEST_F(StateFileTest, EverythingComesBackOnOneRank) {
  Everything state(*world_);
  state.fill();
  save(state);
  const auto alone = local_communicator();
  Everything all(*alone);
  EXPECT_EQ(check(all), "");
  all.spoil();
  const h5::Handle file = h5::open_whole(path_);
  StateReader reader(*alone, &file);
  all.visit(reader);
  all.expect_filled();
}

// Of 8-byte chunks a million clients would have a million, which HDF5 finds and writes at great cost.
TEST_F(StateFileTest, RowsOfClientsLieInOnePiece) {
  Everything state(*world_);
  state.fill();
  save(state);
  const h5::Handle file = h5::open_whole(path_);
  for (const std::string of : {"rows/personal", "scalars/age"}) {
    for (const std::string part : {"/ids", "/values"}) {
      EXPECT_FALSE(h5::extendible(h5::open_dataset(file, "/state/clients/" + of + part))) << of;
    }
  }
}

TEST_F(StateFileTest, WhoPutsAStateBackSaysSo) {
  EXPECT_TRUE(StateReader(*world_, nullptr).restores());
  EXPECT_FALSE(StateWriter(*world_, Everything(*world_).placement, nullptr).restores());
  const Placement placement = Everything(*world_).placement;
  EXPECT_FALSE(StateSize(placement).restores());
  StateCopy copy;
  EXPECT_FALSE(copy.restores());
  copy.put_back();
  EXPECT_TRUE(copy.restores());
  Tensor late = at::zeros({1}, at::kFloat);
  try {
    copy.tensor("late", late);
    ADD_FAILURE() << "put back without having been taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'late': it is visited after a round and not before"),
              std::string::npos);
  }
}

TEST_F(StateFileTest, KnowsItsSize) {
  Everything state(*world_);
  state.fill();
  StateSize size(state.placement);
  state.visit(size);
  EXPECT_EQ(size.common_bytes(), 6 * 8 + 10 * 4 + 8 + 8 + kEdges * 5 * 8)
      << "a row of an edge, on however many ranks";
  std::int64_t own = 0;
  for (const std::int64_t client : state.store.clients()) {
    own += (client != 4 ? 5 * 4 + 8 : 0) + (client != 0 ? 16 : 0);
  }
  EXPECT_EQ(size.own_bytes(), own);
  EXPECT_TRUE(size.names().contains("tensor"));
  EXPECT_TRUE(size.names().contains("clients/rows/personal"));
  EXPECT_TRUE(size.names().contains("clients/scalars/age"));
}

TEST_F(StateFileTest, NamesWhatAFileCannotHold) {
  Tensor sound = at::zeros({1}, at::kFloat);
  Tensor half = at::zeros({1}, at::kHalf);
  Tensor undefined;
  const Placement placement = Everything(*world_).placement;
  const auto reason = [&](const std::string& name, Tensor& values) {
    StateSize size(placement);
    Tensor first = at::zeros({1}, at::kFloat);
    size.tensor("first", first);
    try {
      size.tensor(name, values);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(reason("second", sound), "");
  EXPECT_EQ(reason("first", sound),
            "visit_state() cannot keep 'first': another state has this name");
  EXPECT_NE(reason("a/b", sound).find("'a/b': a name is a word"), std::string::npos);
  for (const std::string name : {"clients", "partial"}) {
    EXPECT_NE(reason(name, sound).find("it is a name of fedhpc's own"), std::string::npos) << name;
  }
  EXPECT_NE(reason("second", undefined).find("'second': it has no numbers"), std::string::npos);
  EXPECT_NE(reason("second", half).find("'second': it is of type Half"), std::string::npos);
  ClientStore store(std::vector<std::int64_t>{0});
  store.scalars("a/b", 0);
  StateSize size(placement);
  EXPECT_THROW(size.clients(store), Error);
}

TEST_F(StateFileTest, RefusesWhatDoesNotFit) {
  Everything state(*world_);
  save(state);
  state.layout = layout_of(4);
  state.rows = {at::zeros({2, 4}, at::kFloat), state.layout};
  EXPECT_NE(check(state).find("another model"), std::string::npos);
  EXPECT_NE(check(state).find("'rows' has shape [2, 5]"), std::string::npos);
  state.tensor = at::zeros({2, 3}, at::kDouble);
  EXPECT_NE(check(state).find("'tensor' is not of type Double"), std::string::npos);
  Everything more(*world_);
  more.store.scalars("new", 0);
  EXPECT_NE(check(more).find("does not hold the state 'clients/scalars/new/values'"),
            std::string::npos);
}

TEST_F(StateFileTest, RefusesIdsThatAreNotThoseOfTheRows) {
  Everything state(*world_);
  state.fill();
  save(state);
  const std::string path = "/state/clients/rows/personal/ids";
  const auto refusal = [&](const auto& change) {
    if (world_->rank() == 0) {
      const h5::Handle file = h5::open_file(path_, h5::Mode::ReadWrite);
      auto ids = h5::read_vector<std::int64_t>(file, path);
      change(ids);
      EXPECT_GE(H5Ldelete(file.id(), path.c_str(), H5P_DEFAULT), 0);
      h5::write_vector(file, path, ids);
    }
    world_->barrier();
    const std::string found = check(state);
    world_->barrier();
    return found;
  };
  using Ids = std::vector<std::int64_t>;
  EXPECT_NE(refusal([](Ids& ids) { ids[0] = ids[1]; }).find("names a client twice"),
            std::string::npos);
  EXPECT_NE(refusal([](Ids& ids) { ids[0] = 1000; }).find("a client that is not one"),
            std::string::npos);
  EXPECT_NE(refusal([](Ids& ids) { ids.pop_back(); }).find("numbers of ids and of rows"),
            std::string::npos);
}

TEST_F(StateFileTest, RefusesATensorOfOtherDimensions) {
  Everything state(*world_);
  save(state);
  state.tensor = at::zeros({6}, at::kLong);
  EXPECT_NE(check(state).find("'tensor' has 2 dimensions, expected 1"), std::string::npos);
}

}  // namespace
}  // namespace fedhpc::testing
