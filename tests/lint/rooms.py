"""Dependencies between rooms point one way.

usage: rooms.py SOURCE_DIR
"""

import pathlib
import re
import sys

# Each room may include itself and these.
ALLOWED = {
    "core": set(),
    "io": {"core"},
    "comm": {"core"},
    "gpu": {"core", "comm"},
    "data": {"core", "comm", "io"},
    "math": {"core", "comm"},
    "models": {"core", "comm", "math"},
    "factorisations": {"core", "comm", "math", "models"},
    "codecs": {"core", "comm", "math", "models"},
    "training": {"core", "comm", "io", "data", "math", "models", "factorisations"},
    "rounds": {"core", "comm", "io", "data", "math", "models", "factorisations", "codecs", "training"},
    "algorithms": {"core", "data", "math", "models", "factorisations", "codecs", "training", "rounds"},
    "engine": {"core", "comm", "io", "data", "math", "models", "factorisations", "codecs", "training",
               "rounds", "algorithms"},
}
ALLOWED["app"] = set(ALLOWED)
INCLUDE = re.compile(r'#include "(?:fedhpc/)?([a-z_]+)/')
FOREIGN = re.compile(r"#include <(mpi|hdf5|nccl|cuda\w*)\.h>")
# No algorithm touches MPI, files or devices; each library has its room.
MAY_USE = {"mpi": {"comm"}, "hdf5": {"io", "app"}, "nccl": {"gpu"}, "cuda_runtime_api": {"gpu"}}


def problems(source: pathlib.Path) -> list[str]:
    found = []
    files = [*source.glob("src/**/*.[ch]pp"), *source.glob("include/fedhpc/**/*.[ch]pp")]
    if len(files) < 20:
        return [f"only {len(files)} sources below {source}: wrong folder?"]
    for file in sorted(files):
        room = file.relative_to(source / ("src" if "src" in file.relative_to(source).parts[:1]
                                          else "include/fedhpc")).parts[0]
        if room not in ALLOWED:
            found.append(f"{file}: '{room}' is not a room")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            used = INCLUDE.match(line)
            if used and used[1] in ALLOWED and used[1] != room and used[1] not in ALLOWED[room]:
                found.append(f"{file}:{number}: room '{room}' may not use room '{used[1]}'")
            library = FOREIGN.match(line)
            if library and room not in MAY_USE.get(library[1], set()):
                found.append(f"{file}:{number}: room '{room}' may not use {library[1]}.h")
    return found


if __name__ == "__main__":
    messages = problems(pathlib.Path(sys.argv[1]))
    print("\n".join(messages) or "rooms: every include points the right way")
    sys.exit(1 if messages else 0)
