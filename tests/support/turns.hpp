#pragma once

#include <string>
#include <vector>

namespace fedhpc::testing {

// One of `turns`, numbers of ranks, by a hash of a test's name. A number that stands there twice is
// drawn twice as often. A test whose name speaks of ranks runs on several.
int turn_of(const std::string& test, std::vector<int> turns);

// Leaves only those tests of this binary whose turn it is on `ranks` ranks, where FEDHPC_TEST_TURNS
// ("0 1 1 2 4", 0 for none) lists numbers of ranks: in the short suite (FEDHPC_TESTS=short) each on
// one of them, in the whole one (FEDHPC_TESTS=all) each on one rank, and every second one and those
// whose names speak of ranks on one number of several. Else each runs on every number. A filter on
// the command line wins. Throws std::invalid_argument where the list holds no numbers.
void take_turns(int ranks);

// Whether a case of a test with many runs: in the short suite one of `of`, by a hash of its name, in
// any other suite all. They are named by their settings, so that all ranks choose the same ones.
bool takes_case(const std::string& name, int of);

}  // namespace fedhpc::testing
