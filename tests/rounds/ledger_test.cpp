#include "fedhpc/rounds/ledger.hpp"

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(Ledger, KeepsLinksAndDirectionsApart) {
  Ledger ledger;
  std::int64_t bytes = 1;
  for (const Link link : {Link::ClientEdge, Link::EdgeCloud, Link::ClientCloud}) {
    for (const Direction direction : {Direction::Up, Direction::Down}) {
      ledger.book(link, direction, bytes);
      ledger.book(link, direction, bytes);
      bytes *= 10;
    }
  }
  EXPECT_EQ(ledger.entries(), (std::array<std::int64_t, 6>{2, 200, 20'000, 20, 2'000, 200'000}));
  EXPECT_THROW(ledger.book(Link::ClientEdge, Direction::Up, -1), std::logic_error);
  ledger.clear();
  EXPECT_EQ(ledger.entries(), (std::array<std::int64_t, 6>{}));
}

}  // namespace
}  // namespace fedhpc
