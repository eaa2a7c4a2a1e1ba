"""clang-tidy's naming rules (.clang-tidy) over all sources.

usage: naming.py SOURCE_DIR BUILD_DIR CLANG_TIDY

Parsing LibTorch's headers takes seconds, so files that are compiled alike are looked at together: copies that one
source includes, with a name for each anonymous namespace, as files may use one name for different things. What does
not compile there for all that is looked at in a batch of its own. A file that passed is not looked at again until
it, a header it includes or the rules change.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from sources import NOT_OURS, Sources

sources = Sources(sys.argv[1], "naming")
source, build, tidy = (sources.root, pathlib.Path(sys.argv[2]).resolve(), sys.argv[3])
BATCH = 24  # files
ANONYMOUS = re.compile(r"^namespace \{", re.MULTILINE)


def flags_by_file() -> dict[pathlib.Path, str]:
    """The compiler's flags of every source, without what clang does not know: gcc's warnings and precompiled header."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        without = re.sub(rf"{NOT_OURS}|-Werror", "", entry["command"])
        compiler_and_files = r"^\S+| -o \S+| -c \S+"
        flags[pathlib.Path(entry["file"])] = re.sub(compiler_and_files, "", without) + " -Wno-everything"
    return flags


class Naming:
    """clang-tidy over batches of files. `shared` says what all files depend on."""

    def __init__(self, flags: dict[pathlib.Path, str], shared: str):
        self.flags = flags
        self.shared = shared

    def _stamp(self, file: pathlib.Path) -> pathlib.Path:
        return sources.stamp(file, self.shared, self.flags[file])

    def passed(self, file: pathlib.Path) -> bool:
        return self._stamp(file).exists()

    def batches(self, files: list[pathlib.Path]) -> list[list[pathlib.Path]]:
        """Files with the same flags, neighbours together."""
        alike = collections.defaultdict(list)
        for file in files:
            alike[self.flags[file]].append(file)
        return [group[first : first + BATCH] for group in alike.values() for first in range(0, len(group), BATCH)]

    def check(self, batch: list[pathlib.Path]) -> list[str]:
        """What clang-tidy complains of, [] when nothing; stamps what passed."""
        wanted = {file: self._stamp(file) for file in batch}
        done = self._run(batch)
        complaints = [line for line in done.stdout.splitlines() if ": error:" in line or ": warning:" in line]
        clashing = {pathlib.Path(line.split(":")[0]) for line in complaints if "[clang-diagnostic-error]" in line}
        if len(batch) > 1 and not (clashing < set(batch)):  # in a header: no saying whose names it is about
            half = len(batch) // 2
            return self.check(batch[:half]) + self.check(batch[half:])
        if len(batch) == 1:
            clashing = set()
        found = [line for line in complaints if pathlib.Path(line.split(":")[0]) not in clashing]
        if not found and done.returncode != 0 and not clashing:
            found = [done.stderr or f"{batch[0]}: clang-tidy failed"]
        if not found:
            for file in set(batch) - clashing:
                wanted[file].touch()
        again = [file for file in batch if file in clashing]
        return found + (self.check(again) if again else [])

    def _run(self, batch: list[pathlib.Path]) -> subprocess.CompletedProcess:
        folder, main = (source, batch[0]) if len(batch) == 1 else self._together(batch)
        beside = [word for place in {file.parent for file in batch} for word in ("-iquote", str(place))]
        command = [tidy, "--quiet", f"--config-file={source / '.clang-tidy'}", str(main), "--", "-ferror-limit=0"]
        done = subprocess.run([*command, *beside, *shlex.split(self.flags[batch[0]])], capture_output=True, text=True)
        done.stdout = done.stdout.replace(f"{folder}/", f"{source}/")
        return done

    def _together(self, batch: list[pathlib.Path]) -> tuple[pathlib.Path, pathlib.Path]:
        """A folder with copies of the files, which lie there as in the checkout, and a source that includes them."""
        folder = build / "naming" / f"{self._stamp(batch[0]).name[:16]}_{len(batch)}"
        for number, file in enumerate(batch):
            copy = folder / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            named = f"namespace file_{number} {{}} using namespace file_{number}; namespace file_{number} {{"
            copy.write_text(ANONYMOUS.sub(named, file.read_text()))
        main = folder / "together.cpp"
        main.write_text("".join(f'#include "{folder / file.relative_to(source)}"\n' for file in batch))
        return folder, main


def main() -> int:
    flags = flags_by_file()
    rooms = ("src", "python", "tests")
    files = sorted(file for room in rooms for file in (source / room).rglob("*.cpp") if file in flags)
    if not files:
        print("no sources in the compilation database")
        return 1
    version = subprocess.run([tidy, "--version"], capture_output=True, text=True).stdout
    naming = Naming(flags, version + (source / ".clang-tidy").read_text())
    batches = naming.batches([file for file in files if not naming.passed(file)])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [line for lines in pool.map(naming.check, batches) for line in lines]
    lines = list(dict.fromkeys(complaints))  # a header's is seen by every batch that includes it
    print("\n".join(lines[:40]) or f"naming: {len(files)} files follow the rules")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
