"""Planted defects, one a room: does the short suite catch each?

usage: mutants.py [NAME ...]

Each defect is put into the sources, built, and looked for by the short suite's tests of `caught_by` (a pattern for
ctest -R); the sources are then as before. It needs a working copy without changes and build/release, built. The same
tests have to pass without a defect. Exit code 1 where a defect was not caught. Half an hour on two cores.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Mutant:
    name: str
    file: str
    right: str
    wrong: str
    caught_by: str


MUTANTS = [
    Mutant("core_generator", "src/core/rng.cpp", "constexpr int kRounds = 10;", "constexpr int kRounds = 9;", "core"),
    Mutant("io_seal", "src/io/seal.cpp", "stream.seekg(kSealBytes);\n  const Block block",
           "stream.seekg(0);\n  const Block block", "io|app_damage|app_kill"),
    Mutant("comm_maximum", "src/comm/mpi_communicator.cpp", "MPI_MAX, Call::Maximum", "MPI_SUM, Call::Maximum",
           "comm"),
    Mutant("data_labels", "src/data/partition_labels.cpp", "chosen{client % classes}", "chosen{0}", "data"),
    Mutant("data_epochs", "src/data/batches.cpp", "static_cast<std::uint64_t>(done_ / batches_per_epoch_)", "0",
           "data|algorithms_test.ranks_1"),
    Mutant("math_exact_sum", "src/math/order_free_sum.cpp", "rounded(scaled.rest * scale.rest).whole",
           "rounded(scaled.rest).whole", "math"),
    Mutant("models_statistics", "src/models/norm_makers.cpp", "number_or(\"momentum\", 0.1)",
           "number_or(\"momentum\", 0.2)", "models"),
    Mutant("factorisations_rank", "src/factorisations/product_factorisation.cpp", "std::ceil(rows * columns",
           "std::floor(rows * columns", "factorisations"),
    Mutant("codecs_bytes", "src/codecs/bits.hpp", "return (bits + 7) / 8;", "return bits / 8;", "codecs"),
    Mutant("training_nesterov", "src/training/row_optimizer.cpp", "at.lr * (d + mu * v[i])",
           "at.lr * (at.g[i] + mu * v[i])",
           "training|algorithms_test.ranks_1"),
    Mutant("training_schedule", "src/training/lr_schedule.cpp", "return after(t);", "return after(t + 1);",
           "training|algorithms_test.ranks_1"),
    Mutant("rounds_cohort", "src/rounds/cohort.cpp", "static_cast<double>(n) + 0.5)", "static_cast<double>(n))",
           "rounds"),
    Mutant("rounds_ledger", "src/rounds/ledger.cpp", "direction)] += bytes", "direction)] = bytes",
           "rounds|conformance_test.ranks_1|app_result"),
    Mutant("rounds_wait", "src/rounds/side_stream.hpp", "passed.block(waiting);", "static_cast<void>(waiting);",
           "device_late"),
    Mutant("rounds_latency", "src/rounds/network.cpp", "? latency + static_cast<double>(bytes)",
           "? static_cast<double>(bytes)", "rounds"),
    Mutant("training_stragglers", "src/training/stragglers.cpp", "1 - draws.uniform()", "draws.uniform()",
           "training|algorithms_test.ranks_1"),
    Mutant("rounds_privacy_noise", "src/rounds/block.cpp", "privacy.add_noise_(changes.narrow(bearer - clients_.begin()),",
           "privacy.add_noise_(changes.clone().narrow(bearer - clients_.begin()),", "algorithms_test.ranks_1"),
    Mutant("rounds_privacy_number", "src/rounds/block.cpp", "state_.sent.of(*bearer) - 1", "0", "python_private"),
    Mutant("math_accountant", "src/math/privacy_accountant.cpp", "chosen * (chosen - 1) / (2 * z * z)",
           "chosen * (chosen + 1) / (2 * z * z)", "math_test"),
    Mutant("rounds_stragglers", "src/rounds/edge_tier.cpp", "drawn = without_absent(", "without_absent(",
           "algorithms_test.ranks_1"),
    Mutant("algorithms_fedprox", "src/algorithms/fedprox.cpp", "{.mu = mu_,", "{.mu = mu_ / 2,",
           "algorithms_test.ranks_1"),
    Mutant("algorithms_ditto", "src/algorithms/ditto.cpp", "block.train(personal, {.pass = 0,",
           "block.train(personal, {.pass = 1,",
           "algorithms_test.ranks_1"),
    Mutant("algorithms_sfedhp", "src/algorithms/sfedhp.cpp", "lambda2_ / (lambda1_ + lambda2_)",
           "lambda1_ / (lambda1_ + lambda2_)",
           "algorithms_test"),
    Mutant("algorithms_state", "src/algorithms/fedmud.cpp", "  state.rows(\"factors\", factors_);\n", "",
           "conformance"),
    Mutant("engine_last_evaluation", "src/engine/experiment.cpp", "|| t == parts_.config.run.rounds;", ";",
           "engine|app_result|conformance_test.ranks_1"),
    Mutant("app_exit_code", "src/app/program.cpp", "constexpr int kRefused = 2;", "constexpr int kRefused = 1;",
           "app_bad_input"),
    Mutant("gpu_penalty", "src/gpu/kernels/row_steps.hpp", "mu * (w.value[k] - at.value[k])",
           "mu * (at.value[k] - w.value[k])",
           "kernels|device"),
    Mutant("python_centre", "python/src/training.cpp", "centre->owned(wanted(verb", "(wanted(verb", "python_methods"),
    Mutant("tools_best", "python/fedhpc/tools/statistics_of_seeds.py",
           "\"least\" if smaller_is_better(metric) else \"best\"", "\"best\"", "tools"),
]


def places(mutant):
    """How often a mutant's file has the text that it changes."""
    return (SOURCE / mutant.file).read_text().count(mutant.right)


def run(*command, **environment):
    return subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, env={**os.environ, **environment})


def tests_of(pattern, *how):
    """What ctest prints of these tests of the short suite."""
    return run("ctest", "--preset", "release", "-R", pattern, "-LE", "long", *how,
               OMP_NUM_THREADS="1", FEDHPC_TESTS="short").stdout


def failures(printed):
    """Of ctest's list the tests that have failed or crashed, and the lines of the others: what was not run, took too
    long or was killed has caught nothing."""
    lines = re.findall(r"^\s*\d+ - ((\S+) \((.+?)\))", printed.partition("tests FAILED:")[2], re.MULTILINE)
    crashes = ("Failed", "SEGFAULT", "Subprocess aborted")
    return ([name for _, name, end in lines if end in crashes], [line for line, _, end in lines if end not in crashes])


def verdict(mutant):
    """What became of a mutant, and whether a test has caught it."""
    file = SOURCE / mutant.file
    text = file.read_text()
    if places(mutant) != 1:
        return f"{mutant.file} has {places(mutant)} places for it", False
    try:
        file.write_text(text.replace(mutant.right, mutant.wrong))
        built = run("cmake", "--build", "--preset", "release")
        if built.returncode != 0:
            return "does not build:\n" + built.stdout[-2000:], False
        failed, others = failures(tests_of(mutant.caught_by, "--stop-on-failure"))
        return (f"caught by {', '.join(failed)}", True) if failed else (": ".join(["not caught", *others]), False)
    finally:
        file.write_text(text)


def main():
    if run("git", "status", "--porcelain", "--untracked-files=no").stdout:
        print("the working copy has changes", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    failed, others = failures(tests_of("|".join(sorted({mutant.caught_by for mutant in chosen}))))
    if failed or others:
        print(f"without any defect: {', '.join([*failed, *others])}", file=sys.stderr)
        return 2
    missed = 0
    for mutant in chosen:
        what, caught = verdict(mutant)
        missed += not caught
        print(f"{mutant.name}: {what}", flush=True)
    run("cmake", "--build", "--preset", "release")
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
