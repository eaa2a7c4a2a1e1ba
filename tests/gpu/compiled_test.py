"""What nvcc made of the kernels: no spills but those named here, no more registers than a launch has, accesses of 16 bytes.

usage: compiled_test.py MODULE [CUOBJDUMP]

MODULE is libfedhpc_kernels.so. cuobjdump (with nvdisasm beside it) is looked for in FEDHPC_CUOBJDUMP, the
argument, the toolkit, this Python's packages and PATH. Exit code 77: there is none.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

REGISTERS = 65536  # of a multiprocessor
THREADS = {"run_each": 256, "run_groups": 512, "run_tiles": 128}  # of a block, at most: src/gpu/cuda_table.cu, kernels/packs.hpp
# Bytes of stack that a kernel may have. ptxas keeps some numbers there that a thread needs rarely, where more threads find
# room for it. On the cards that have been measured it may do so in these kernels alone.
FRAME = 32
MEASURED = ("sm_90",)
FRAMES = {
    "BatchNormBackward": "two sums, while a channel's values are gone through",
    "Fold<float, true>": "dilated windows are rare",
}
# Kernels in packs whose reads are no packs: bytes of pixels, columns that a window cuts.
NARROW_READS = ("Gather", "Unfold")
# And those that write sums alone.
NARROW_WRITES = ("NormParametersByPlaces",)
# What products by tiles do in 16 bytes: copies to shared memory beside the sums, reads of it, and the stores of a product, or
# of the residual that the next product reads.
TILES = {"TileProduct": ("LDGSTS", "LDS", "STG"), "ResidualProduct": ("LDGSTS", "LDS", "STS")}


def find_cuobjdump() -> str | None:
    """The first of the places named above."""
    packages = pathlib.Path(sysconfig.get_path("purelib"), "nvidia/cu13/bin/cuobjdump")
    named = [os.environ.get("FEDHPC_CUOBJDUMP"), *sys.argv[2:], "/usr/local/cuda/bin/cuobjdump", str(packages),
             "cuobjdump"]
    return next((path for name in named if name and (path := shutil.which(name))), None)


def plain(name: str) -> tuple[str, str]:
    """run_each and the like, and the kernel with its template arguments, of a demangled function."""
    how, rest = re.search(r"(run_\w+)<(.*)", name).groups()
    rest = rest.replace("fedhpc::kernels::", "")
    depth = 0
    for place, letter in enumerate(rest):
        depth += (letter == "<") - (letter == ">")
        if depth < 0 or (letter == "(" and depth == 0):
            return how, rest[:place].strip()
    return how, rest


def demangled(names: list[str]) -> list[tuple[str, str]]:
    """plain() of every name."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [plain(line) for line in text.splitlines()]


def resources(tool: str, module: str) -> list[tuple[str, str, str, int, int, int]]:
    """(architecture, how it is launched, kernel, registers, bytes of stack, of local memory) of all."""
    text = subprocess.run([tool, "-res-usage", module], capture_output=True, text=True, check=True).stdout
    found, arch = [], ""
    for line in re.finditer(r"arch = (\w+)|Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text):
        arch = line[1] or arch
        if line[2]:
            found.append((arch, line[2], *map(int, line.groups()[2:])))
    names = demangled([one[1] for one in found])
    return [(one[0], *name, *one[2:]) for one, name in zip(found, names, strict=True)]


def instructions(tool: str, module: str) -> list[tuple[str, str, set[str]]]:
    """(architecture, kernel, its accesses of memory) of all."""
    text = subprocess.run([tool, "-sass", module], capture_output=True, text=True, check=True).stdout
    found, arch = [], ""
    for part in re.split(r"(?m)^\s*(?=Function : |arch = |code for )", text):
        if named := re.match(r"(?:arch = |code for )(\w+)", part):
            arch = named[1]
        elif named := re.match(r"Function : (\S+)", part):
            found.append((arch, named[1], set(re.findall(r"\b(?:LDGSTS|(?:LD|ST)[GSL])\b[.\w]*", part))))
    names = demangled([one[1] for one in found])
    return [(one[0], name[1], one[2]) for one, name in zip(found, names, strict=True)]


def allowed_frame(arch: str, kernel: str) -> int:
    """Bytes of stack of this kernel, at most."""
    named = kernel in FRAMES or kernel.split("<")[0] in FRAMES
    return FRAME if named or arch not in MEASURED else 0


def problems(tool: str, module: str) -> tuple[list[str], int]:
    """What is wrong, and the number of kernels looked at."""
    found = []
    used = resources(tool, module)
    for arch, how, kernel, registers, stack, local in used:
        threads = int(kernel.split(",")[-1].rstrip("> ")) if kernel.startswith("TileProduct") else THREADS[how]
        if registers * threads > REGISTERS:
            found.append(f"{arch} {kernel}: {registers} registers for {threads} threads")
        if stack > allowed_frame(arch, kernel) or local > 0:
            found.append(f"{arch} {kernel}: {stack} bytes of stack, {local} of local memory; allowed: "
                         f"{allowed_frame(arch, kernel)} (FRAMES in {pathlib.Path(__file__).name})")
    seen = {kernel.split("<")[0] for _, _, kernel, *_ in used}
    found += [f"there is no kernel {name}, which TILES names" for name in TILES if name not in seen]
    for arch, kernel, accesses in instructions(tool, module):
        wide = {access.split(".")[0] for access in accesses if ".128" in access or ".256" in access}
        for kind in TILES.get(kernel.split("<")[0], ()):
            if kind not in wide:
                found.append(f"{arch} {kernel}: no {kind} of 16 bytes")
        packs = re.match(r"\w+<(?:float, 4|double, 2)\b", kernel)
        if packs and "STG" not in wide and not kernel.startswith(NARROW_WRITES):
            found.append(f"{arch} {kernel}: no store of 16 bytes")
        if packs and "LDG" not in wide and not kernel.startswith(NARROW_READS):
            found.append(f"{arch} {kernel}: no load of 16 bytes")
    return found, len(used)


def main() -> int:
    """Prints the problems; exit code 1 if there is one."""
    tool = find_cuobjdump()
    if tool is None:
        print("skipped: there is no cuobjdump (CUDA toolkit, or FEDHPC_CUOBJDUMP)")
        return 77
    found, kernels = problems(tool, sys.argv[1])
    print("\n".join(found) or f"{kernels} kernels: registers, frames and accesses are as they should be")
    return 1 if found or kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
