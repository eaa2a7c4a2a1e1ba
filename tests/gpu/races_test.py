"""ThreadSanitizer finds no race in the kernels, run by as many threads as a card has, and finds each that is put in.

usage: races_test.py KERNEL_RACES KERNELS_DIR

KERNEL_RACES is the program of tests/gpu/races, KERNELS_DIR the folder of the kernels' sources. Exit code 77:
ThreadSanitizer does not run on this machine.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

REPORTED = 66  # ThreadSanitizer's exit code
ENVIRONMENT = {**os.environ, "TSAN_OPTIONS": f"halt_on_error=1:exitcode={REPORTED}"}
# What has a race: planted kernels, and kernels that do not wait where they must, the nth time.
RACES = [
    ["team_sum"],  # a sum over a team orders no memory
    ["team_sync"],  # of a team alone
    ["groups"],
    ["elements"],
    ["neighbours", "1"],
    ["neighbours", "2"],
    *(["products", str(n)] for n in (1, 2, 3)),
    *(["residuals", str(n)] for n in (1, 5, 6, 7, 10)),
    ["losses", "1"],
    ["norms_of_values", "2"],
]
# A memory it cannot lay out, no right to another layout, too few threads.
NO_SANITIZER = re.compile("unexpected memory mapping|memory layout is incompatible|failed to set personality|"
                          "Resource temporarily unavailable")
KERNEL = re.compile(r"^struct (\w+)|FEDHPC_KERNEL void operator\(\)\((?:Group& group, )?std::int64_t \w+", re.MULTILINE)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess:
    """The program's end; without a random layout of memory where ThreadSanitizer cannot have it."""
    for prefix in ([], ["setarch", "-R"]):
        if prefix and not shutil.which(prefix[0]):
            continue
        done = subprocess.run([*prefix, program, *arguments], capture_output=True, text=True, env=ENVIRONMENT)
        if not NO_SANITIZER.search(done.stderr):
            return done
    print("skipped: ThreadSanitizer does not run here:", done.stderr.strip())
    sys.exit(77)


def kernels_of(folder: pathlib.Path) -> set[str]:
    """The names of all kernels in the sources."""
    found = set()
    for header in folder.glob("*.hpp"):
        name = ""
        for match in KERNEL.finditer(header.read_text()):
            name = match[1] or name
            if match[1] is None:
                found.add(name)
    return found


def main() -> int:
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        whole = pool.submit(run, program)
        reports = list(pool.map(lambda arguments: run(program, *arguments), RACES))
        done = whole.result()
    print(done.stdout, done.stderr, sep="")
    problems = []
    if done.returncode != 0:
        problems.append(f"exit code {done.returncode}: a race, or another result than by one thread")
    have_run = set(re.findall(r"\w+", done.stdout.partition("kernels:")[2]))
    if left := kernels_of(folder) ^ have_run:
        problems.append(f"in no case of tests/gpu/races, or in no source: {' '.join(sorted(left))}")
    for arguments, one in zip(RACES, reports, strict=True):
        if one.returncode != REPORTED or "data race" not in one.stderr:
            problems.append(f"{' '.join(arguments)}: no race was reported (exit code {one.returncode})")
    print("\n".join(problems) or f"no race in {len(have_run)} kernels; {len(RACES)} that were put in are reported")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
