// Probabilities of the tree of GP classifiers, for a comparison in numpy:
//
//   gp_numbers OUTPUTSCALE LENGTHSCALE JITTER DRAWS STEPS AVERAGING KNOWN SCORED WIDTH CLASSES
//
// reads KNOWN labels, KNOWN rows of WIDTH values and SCORED rows, and writes log-probabilities.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "fedhpc/math/gp_tree.hpp"

namespace {

at::Tensor read_rows(std::int64_t rows, std::int64_t width) {
  const at::Tensor values = at::empty({rows, width}, at::kDouble);
  for (std::int64_t i = 0; i < values.numel(); ++i) std::cin >> values.data_ptr<double>()[i];
  return values;
}

}  // namespace

int main(int count, char** words) {
  if (count != 11) return EXIT_FAILURE;
  const auto number = [&](int i) { return std::stod(words[i]); };
  const auto whole = [&](int i) { return static_cast<std::int64_t>(std::stoll(words[i])); };
  const fedhpc::GpTreeSettings settings{
      .kernel = {.outputscale = number(1), .lengthscale = number(2), .jitter = number(3)},
      .averaging = std::string(words[6]) == "log" ? fedhpc::Averaging::LogProbability
                                                  : fedhpc::Averaging::Probability};
  const fedhpc::GpDraws draws{.key = {.seed = 11},
                              .chains = {.draws = whole(4), .steps = whole(5)}};
  std::vector<std::int64_t> labels(static_cast<std::size_t>(whole(7)));
  for (std::int64_t& label : labels) std::cin >> label;
  const at::Tensor known = read_rows(whole(7), whole(9));
  const at::Tensor scored = read_rows(whole(8), whole(9));
  const fedhpc::GpTree tree({.values = known, .labels = labels}, settings, draws);
  const at::Tensor table = tree.log_probabilities(scored, whole(10));
  for (std::int64_t i = 0; i < table.numel(); ++i) {
    std::printf("%.17g\n", table.const_data_ptr<double>()[i]);
  }
  return std::cin ? EXIT_SUCCESS : EXIT_FAILURE;
}
