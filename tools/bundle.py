#!/usr/bin/env python3
"""Packs a build for a machine that has LibTorch of the same version (a pip torch) and little else.

    tools/bundle.py build/release fedhpc.tar.gz [--standin] [--program tests/models_test ...]
    tar xf fedhpc.tar.gz && cd fedhpc
    ./run build/tests/device_test                # anything of the bundle, with its libraries
    ./run mpirun -n 2 build/fedhpc run configs/quickstart.ini
    bench/on_a_card.sh build results

In it are the program, the modules for GPUs, tests and benchmarks of what happens there, Open MPI and the
system's libraries that all these need, stripped. glibc, LibTorch and CUDA's libraries are the machine's; its
glibc must not be older than this one's. libstdc++ is taken from the bundle only where the machine's is older.
A .tar.xz is a third smaller, for a machine with xz.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ["fedhpc", "libfedhpc.so", "libfedhpc_gpu.so", "libfedhpc_kernels.so", "tests/device_test",
            "tests/kernels_test", "tests/comm_test", "bench/device_training", "bench/reduction"]
STANDIN = "tests/libfedhpc_standin.so"
FILES = ["bench/on_a_card.sh", "bench/device_training.py", "tools/mpi_environment.sh", "configs/quickstart.ini"]

GLIBC = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|nsl|anl))\.so")
LIBTORCH = re.compile(r"^lib(c10|torch|shm|caffe2|gomp)")
OWN = re.compile(r"^libfedhpc")  # in build/, where the library looks for the modules beside itself
CUDA = re.compile(r"^lib(cu(da|blas|dnn|fft|file|rand|solver|sparse|pti)|nccl|nv)")
LIBSTDCXX = re.compile(r"^lib(stdc\+\+|gcc_s)\.so")
# Of Open MPI: what needs other networks' libraries stays out.
OTHER_NETWORKS = re.compile(r"ofi|ucx|psm|openib|usnic|portals|verbs|monitoring|hcoll|pvfs|lustre|romio")


def say(text):
    print(f"bundle: {text}", flush=True)


def libraries_of(path):
    """{name: file} of all shared libraries that a program or library needs."""
    listing = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    found = {}
    for line in listing.splitlines():
        if match := re.match(r"\s*(\S+) => (/\S+) ", line):
            found[match[1]] = pathlib.Path(match[2])
    return found


def is_bundled(name):
    return not any(kind.match(name) for kind in (GLIBC, LIBTORCH, CUDA, OWN))


def place(source, target):
    """A copy without symbols and without folders of this machine to look for libraries in."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    if target.suffix == ".so" or ".so." in target.name or os.access(target, os.X_OK):
        subprocess.run(["strip", "--strip-unneeded", target], capture_output=True, check=False)
        script = target.with_name(target.name + ".cmake")
        script.write_text(f"file(RPATH_REMOVE FILE [[{target}]])\n", encoding="utf-8")
        subprocess.run(["cmake", "-P", script], capture_output=True, check=False)  # fails for what is no ELF file
        script.unlink()


def open_mpi():
    """{place below mpi/: file} of the launcher and the components, empty where there is no Open MPI."""
    launcher = shutil.which("orterun")
    if launcher is None:
        return {}
    listing = subprocess.run(["ompi_info", "--path", "pkglibdir", "--path", "pkgdatadir", "--parsable"],
                             capture_output=True, text=True, check=False).stdout
    folders = dict(re.findall(r"path:(\w+):(\S+)", listing))
    prefix = pathlib.Path(launcher).resolve().parent.parent
    files = {"bin/orterun": launcher, "bin/mpirun": launcher, "bin/orted": shutil.which("orted")}
    for component in pathlib.Path(folders["pkglibdir"]).glob("*.so"):
        if not OTHER_NETWORKS.search(component.name):
            files[component.relative_to(prefix)] = component
    for text in pathlib.Path(folders["pkgdatadir"]).rglob("*"):
        if text.is_file():
            files[text.relative_to(prefix)] = text
    for library in libraries_of(next(pathlib.Path(folders["pkglibdir"]).glob("mca_pmix_ext*.so"), launcher)).values():
        if library.name.startswith("libpmix"):
            for component in (library.resolve().parent / "pmix").glob("*.so"):
                files[component.relative_to(prefix)] = component
    return {where: pathlib.Path(file) for where, file in files.items() if file}


def newest_symbol(libstdcxx):
    versions = re.findall(rb"GLIBCXX_3\.4\.(\d+)", libstdcxx.read_bytes())
    return f"GLIBCXX_3.4.{max(map(int, versions))}"


def first_match(pattern, file):
    match = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE) if file.exists() else None
    return match[1] if match else None


def libtorch_version(build):
    """Of the LibTorch that the build was made with."""
    torch = first_match(r"^FEDHPC_TORCH:PATH=(.*)$", build / "CMakeCache.txt")
    return first_match(r"__version__ = '(.*)'", pathlib.Path(torch) / "version.py") if torch else "unknown"


def version(build):
    """What the program says it is made of."""
    program = build / "fedhpc"
    if not program.exists():
        return "fedhpc unknown"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    return told.strip() or "fedhpc unknown"


def check_age(build):
    """Ends where the program is of another commit than the sources: its figures would be told as theirs."""
    made_of = re.search(r"\(([0-9a-f]{12,})(-modified)?,", version(build))
    if not made_of or not shutil.which("git"):
        return
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    if not head:
        return
    if not head.startswith(made_of[1]):
        sys.exit(f"bundle: error: the program in {build} is of {made_of[1]}, the sources are at {head[:12]}: build first, "
                 "or --older")
    if made_of[2]:
        say(f"the program has changes that are not in {made_of[1]}")


def fill(folder, build, programs, launcher):
    needed = {}
    for name in programs:
        if not (build / name).exists():
            say(f"{name} is not built: left out")
            continue
        place(build / name, folder / "build" / name)
        needed |= libraries_of(build / name)
    if not needed:
        sys.exit(f"bundle: error: nothing is built in {build}")
    for where, file in (open_mpi() if launcher else {}).items():
        place(file, folder / "mpi" / where)
        if ".so" in file.name or where in ("bin/orterun", "bin/orted"):
            needed |= libraries_of(file)
    for name, file in sorted(needed.items()):
        if not is_bundled(name):
            continue
        if LIBSTDCXX.match(name):
            place(file, folder / "lib/libstdc++" / name)
            if name.startswith("libstdc++"):
                (folder / "lib/libstdc++/version").write_text(newest_symbol(file) + "\n", encoding="utf-8")
        else:
            place(file, folder / "lib" / name)
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "tools/with_libraries.sh", folder / "run")
    (folder / "bundle.txt").write_text(f"{version(build)}\nLibTorch {libtorch_version(build)}\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path, help="a .tar.gz or .tar.xz")
    parser.add_argument("--program", action="append", default=[], help="another one of the build, e.g. tests/models_test")
    parser.add_argument("--standin", action="store_true", help="also the stand-in for a GPU that tests use")
    parser.add_argument("--no-mpi", action="store_true", help="without mpirun: one process at a time")
    parser.add_argument("--older", action="store_true", help="also a build of another commit than the sources")
    parser.add_argument("--most", type=float, default=60, metavar="MB", help="fail when larger (default 60)")
    options = parser.parse_args()
    if options.output.suffix not in (".gz", ".xz"):
        parser.error(f"{options.output} ends neither in .gz nor in .xz")
    if not options.build.is_dir():
        parser.error(f"{options.build} is no folder")
    if not options.older:
        check_age(options.build.resolve())
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "fedhpc"
        fill(folder, options.build.resolve(), PROGRAMS + options.program + [STANDIN] * options.standin,
             not options.no_mpi)
        unpacked = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        with tarfile.open(options.output, f"w:{options.output.suffix[1:]}") as archive:
            archive.add(folder, "fedhpc")
    packed = options.output.stat().st_size
    say(f"{options.output}: {1e-6 * packed:.1f} MB, unpacked {1e-6 * unpacked:.1f} MB")
    if packed > 1e6 * options.most:
        sys.exit(f"bundle: error: more than {options.most:g} MB")


if __name__ == "__main__":
    main()
