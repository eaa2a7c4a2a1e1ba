"""The installed package serves another project, and people who have nothing but it.

usage: install_test.py CMAKE SOURCE_DIR BUILD_DIR PYTHON

Everything runs from a prefix that was moved, and where the kernel lets us (a mount namespace), with an empty folder in
the place of the sources.
"""

import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile

from alone import check, run, without_sources

cmake, source, build, python = sys.argv[1:5]
COMPLETED = [("r", "run resume"), ("run --run.mp", "--run.mpi="), ("run x.ini --run.mpi =", "auto on off"),
             ("run x.ini --run.mpi = o", "on off"), ("list mo", "models"), ("help fedpr", "fedprox fedprox_ft"),
             ("run x.ini --algorithm.name = hier", "hierfavg"), ("resume a.", "escaped: a.ckpt.2.h5 a.h5 a.ini"),
             ("run a", "escaped: a.ini"), ("run --go", "--go-on"), ("plan --ra", "--ranks"),
             ("list --", "--run.plugin= --help"), ("show ", "model config run"), ("show config a", "escaped: a.ini"),
             ("show config a.ini run.mp", "run.mpi"), ("show model a.ini --run.mp", "--run.mpi="),
             ("run x.ini --algorithm.codec = d", "dense dense32 drive"),
             ("run x.ini --algorithm.codec",
              " ".join(f"--algorithm.codec{end}=" for end in ("", "_fraction", "_levels", "_rank")))]
SRUN = '#!/bin/bash\n[ "$1" != --mpi=list ] || { echo pmix; exit; }\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'


def installed(folder):
    """A prefix with program, library and LibTorch, moved after it was installed."""
    for component in ([], ["--component", "torch"]):
        run(cmake, "--install", build, "--prefix", folder / "first", *component)
    return (folder / "first").rename(folder / "prefix")


def serves_a_project_by_cmake(prefix, folder):
    targets = next(prefix.glob("**/fedhpcTargets.cmake")).read_text()
    check("hdf5" not in targets.lower(), f"names the build machine's HDF5: {targets}")
    run(cmake, "-S", pathlib.Path(source, "tests", "install"), "-B", folder, "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", folder)
    run(folder / "consumer")


def follows_another_torch(prefix, folder):
    """A configured project that is told of another LibTorch takes nothing more from the first."""
    torch = re.search("^FEDHPC_TORCH:PATH=(.+)$", pathlib.Path(build, "CMakeCache.txt").read_text(), re.MULTILINE)[1]
    folder.mkdir()
    for name in ("first", "second"):
        (folder / name).symlink_to(torch)
        run(cmake, "-S", pathlib.Path(source, "tests", "install"), "-B", folder / "build", "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={prefix}", f"-DFEDHPC_TORCH={folder / name}")
    rules = (folder / "build/build.ninja").read_text()
    check(f"{folder}/second/lib/libc10.so" in rules and f"{folder}/first/" not in rules, "two LibTorches at once")


def is_looked_for(prefix, folder, *options, found):
    """By two folders of a project that can do without it, twice by each."""
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "CMakeLists.txt").write_text(
            f"find_package(fedhpc QUIET)\nfind_package(fedhpc QUIET)\nmessage(STATUS {name}=${{fedhpc_FOUND}})\n")
    (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
                                           "add_subdirectory(one)\nadd_subdirectory(two)\n")
    said = run(cmake, "-S", folder, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    check(re.findall(r"(?:one|two)=(\w+)", said) == [found, found], said)


def serves_a_plugin(prefix, folder):
    """The example, built and run by nothing but what is installed."""
    example = prefix / "share/fedhpc/examples/plugin"
    run(cmake, "-S", example, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run(cmake, "--build", folder)
    keys = [f"--run.plugin={folder / 'libserver_momentum.so'}", "--algorithm.name=server_momentum", "--run.rounds=1",
            f"--run.output={folder / 'run.h5'}"]
    run(prefix / "bin/fedhpc", "run", prefix / "share/fedhpc/configs/algorithms/fedavg.ini", *keys)


def serves_a_project_by_pkg_config(prefix, folder):
    if shutil.which("pkg-config") is None:
        return
    pages = next(prefix.glob("**/fedhpc.pc")).parent
    flags = run("pkg-config", "--cflags", "--libs", "fedhpc", env={**os.environ, "PKG_CONFIG_PATH": str(pages)})
    run("c++", "-std=c++20", pathlib.Path(source, "tests/install/consumer.cpp"), *shlex.split(flags), "-o",
        folder / "by_pkg_config")
    run(folder / "by_pkg_config")


def works_alone(prefix, folder):
    share, program = prefix / "share/fedhpc", prefix / "bin/fedhpc"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("FEDHPC", "LD_LIBRARY"))}
    environment = {**bare, "PYTHONPATH": str(folder / "libraries"), "FEDHPC_CACHE": "off"}
    hidden = without_sources(folder, source, python)

    def alone(*command, **variables):
        return run(*hidden, *command, cwd=folder, env={**environment, **variables})

    interpreter = pathlib.Path(os.path.realpath(python))
    config = share / "configs/quickstart.ini"
    check(re.match(r"fedhpc \d", alone(program, "--version")), "no version")
    alone(program, "run", config, "--run.rounds=2", "--run.output=a.h5")
    alone(interpreter, share / "tools/plot.py", "a.h5", "--output", "a.png")
    check((folder / "a.png").stat().st_size > 1000, "no picture")
    check("a" in alone(interpreter, share / "tools/summarize.py", "a.h5"), "no summary")
    alone(interpreter, share / "tools/reproduce.py", "tdpfed", "--status")
    said = alone(interpreter, "-c", "import fedhpc; print(fedhpc.Results('a.h5'))",
                 PYTHONPATH=f"{share / 'python'}:{folder / 'libraries'}")
    check("2 rounds, complete" in said, said)
    script = alone(interpreter, share / "tools/submit.py", config, "--ranks", "2", "--plan-ranks", "1")
    check(f"FEDHPC_HOME={share}\n" in script and f"FEDHPC={program}\n" in script, f"not of this prefix: {script[:800]}")

    # A job, by stand-ins for SLURM's commands.
    for name, text in (("srun", SRUN), ("squeue", "#!/bin/sh\necho RUNNING\n")):
        (folder / "bin" / name).parent.mkdir(exist_ok=True)
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    said = alone("bash", share / "jobs/single_node.sbatch", config, "--run.rounds=1", "--run.output=job.h5",
                 FEDHPC_HOME=str(share), SLURM_NTASKS="1", SLURM_SUBMIT_DIR=str(folder), SLURM_JOB_ID="7",
                 PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    check("job: done" in said and (folder / "job.h5").exists(), said)

    # Pages of the program itself.
    page = (prefix / "share/man/man1/fedhpc.1").read_text()
    plain = page.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")
    for words in ([], ["run"], ["resume"], ["plan"], ["list"], ["show"], ["help"], ["export"], ["keys"]):
        check(alone(program, "help", *words) in plain, f"fedhpc(1) does not say what fedhpc help {' '.join(words)} says")
    if shutil.which("man"):
        formatted = run("man", "--warnings", "-l", prefix / "share/man/man1/fedhpc.1", env={**bare, "MANWIDTH": "200"})
        # Containers often have a stub in its place, which says that the system is minimized.
        check("run.checkpoint_every" in formatted or "minimized" in formatted, formatted[:500])
    (folder / "a.ini").touch()
    completes(program, prefix / "share/bash-completion/completions/fedhpc", alone)

    texts = [path for path in share.rglob("*") if path.suffix in (".py", ".sh", ".sbatch", ".pbs", ".ini", ".md")]
    check(len(texts) > 200, f"{len(texts)} texts")
    named = re.compile(r"(?<![\w.}])" + re.escape(str(source)) + r"(?=[/\s\"']|$)", re.MULTILINE)
    for path in texts:
        check(not named.search(path.read_text()), f"{path} names the source folder")


def completes(program, completion, alone):
    script = f'source {shlex.quote(str(completion))}\ncompopt() {{ [ "$2" != filenames ] || echo -n "escaped: "; }}\n'
    for typed, _ in COMPLETED:
        words = [str(program), *typed.split(" ")]
        script += f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _fedhpc; echo ${{COMPREPLY[@]}}\n"
    said = alone("bash", "-c", script).splitlines()
    check(said == [expected for _, expected in COMPLETED], f"completed: {said}")


def packs(folder):
    """An archive that runs where it is unpacked, with a LibTorch that is linked into its place."""
    run(pathlib.Path(cmake).with_name("cpack"), "-G", "TGZ", "--config", pathlib.Path(build, "CPackConfig.cmake"), "-B", folder / "pack",
        "-D", "CPACK_COMPONENTS_ALL=program")
    archive, = (folder / "pack").glob("*.tar.gz")
    (folder / "unpacked").mkdir()
    run("tar", "xf", archive, "-C", folder / "unpacked")
    top, = (folder / "unpacked").iterdir()
    (top / "lib/fedhpc").mkdir(parents=True, exist_ok=True)
    (top / "lib/fedhpc/torch").symlink_to(folder / "prefix/lib/fedhpc/torch")
    hidden = without_sources(folder, source, python)
    said = run(*hidden, "ldd", top / "bin/fedhpc")
    check(f"{top}/bin/../lib/fedhpc/torch/libtorch_cpu.so" in said, said)
    run(*hidden, top / "bin/fedhpc", "--version")
    return f"{archive.stat().st_size / 1e6:.1f} MB packed"


with tempfile.TemporaryDirectory() as scratch:
    work = pathlib.Path(scratch).resolve()
    place = installed(work)
    works_alone(place, work)
    size = packs(work)
    serves_a_project_by_cmake(place, work / "consumer")
    follows_another_torch(place, work / "torches")
    is_looked_for(place, work / "asks", found="1")
    is_looked_for(place, work / "asks_in_vain", f"-DFEDHPC_TORCH={work / 'none'}", found="0")
    serves_a_plugin(place, work / "plugin")
    serves_a_project_by_pkg_config(place, work)
print(f"installed, moved, run without the sources, found, built against, {size}")
