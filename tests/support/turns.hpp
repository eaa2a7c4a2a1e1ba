#pragma once

#include <string>
#include <vector>

namespace fedhpc::testing {

// The number of ranks on which a test runs in the short suite: one of `turns` by a hash of its
// name. A number that stands there twice is drawn twice as often. A test whose name speaks of ranks
// runs on several.
int turn_of(const std::string& test, std::vector<int> turns);

// In the short suite (FEDHPC_TESTS=short) leaves only those tests of this binary whose turn it is
// on `ranks` ranks, where FEDHPC_TEST_TURNS ("1 1 2 4") lists numbers of ranks. Else changes
// nothing. A filter on the command line wins. Throws std::invalid_argument where the list holds no
// numbers.
void take_turns(int ranks);

}  // namespace fedhpc::testing
