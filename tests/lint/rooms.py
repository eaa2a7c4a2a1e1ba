"""Dependencies between rooms point one way, and what is of the machine stays in the rooms that have it.

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
    "models": {"core", "comm", "io", "math"},
    "factorisations": {"core", "comm", "math", "models"},
    "codecs": {"core", "comm", "math", "models"},
    "training": {"core", "comm", "io", "data", "math", "models", "factorisations"},
    "rounds": {"core", "comm", "io", "data", "math", "models", "factorisations", "codecs", "training"},
    "algorithms": {"core", "data", "math", "models", "factorisations", "codecs", "training", "rounds"},
    "engine": {"core", "comm", "io", "data", "math", "models", "factorisations", "codecs", "training",
               "rounds", "algorithms"},
}
# The header of plug-ins lies beside the rooms.
ALLOWED["plugin.hpp"] = {"core", "data", "models", "factorisations", "codecs", "algorithms", "version.hpp"}
ALLOWED["version.hpp"] = set()  # made by the build
ALLOWED["engine"] |= {"plugin.hpp"}
ALLOWED["app"] = set(ALLOWED)
KERNELS = "/device_kernels.hpp"  # by which a room names its kernels; gpu has all of them
# Each library has its room, and each header of devices the rooms that work on them: no algorithm is one.
MAY_INCLUDE = {
    "mpi.h": {"comm"},
    "hdf5.h": {"io"},
    "nccl.h": {"gpu"},
    "cuda_runtime_api.h": {"gpu"},
    "core/device.hpp": {"core", "io", "data", "math", "models", "factorisations", "codecs", "training", "rounds",
                        "engine"},
    "core/to_device.hpp": {"core", "math", "models", "training", "rounds"},
    "core/device_kernels.hpp": {"core", "gpu", "data", "math", "models", "factorisations", "training", "rounds",
                                "engine"},
    "comm/gpu_library.hpp": {"comm", "gpu", "training", "rounds", "engine"},
    "rounds/device_row_memory.hpp": {"rounds", "engine"},
}
INCLUDE = re.compile(r'#include ["<](?:fedhpc/)?([^">]+)[">]')
HDF5 = re.compile(r"\bhid_t\b|\bH5[A-Za-z][A-Za-z0-9_]*\(")
DEVICE = re.compile(r"\w*on_device\w*|\b(?:on_host|to_device|HostEdit|is_cuda|is_cpu|kCUDA|kCPU|pin_memory)\b|\bcpu\(\)"
                    r"|\bdevice\(\)|\bDevice[A-Z]\w*")


def problems_of(room: str, line: str) -> list[str]:
    """What a line of a source of this room may not hold."""
    found = []
    code = line.split("//")[0]
    if used := INCLUDE.match(line):
        if used[1] in MAY_INCLUDE:
            if room not in MAY_INCLUDE[used[1]]:
                found.append(f"room '{room}' may not include {used[1]}")
            return found
        other = used[1].split("/")[0]
        if room == "gpu" and used[1] == other + KERNELS:
            return found
        if other in ALLOWED and other != room and other not in ALLOWED[room]:
            found.append(f"room '{room}' may not use room '{other}'")
        return found
    if room != "io" and (used := HDF5.search(code)):
        found.append(f"room '{room}' may not use HDF5's {used[0]}; io has functions for it")
    if room == "algorithms" and (used := DEVICE.search(code)):
        found.append(f"a method knows no device: {used[0]}")
    return found


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
            found += [f"{file}:{number}: {problem}" for problem in problems_of(room, line)]
    return found


if __name__ == "__main__":
    messages = problems(pathlib.Path(sys.argv[1]))
    print("\n".join(messages) or "rooms: every include points the right way, and methods know no device")
    sys.exit(1 if messages else 0)
