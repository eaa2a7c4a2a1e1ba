"""The installed package serves another project.

usage: install_test.py CMAKE SOURCE_DIR BUILD_DIR
"""

import pathlib
import subprocess
import sys
import tempfile

cmake, source, build = sys.argv[1:4]


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


with tempfile.TemporaryDirectory() as folder:
    prefix, consumer = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "consumer")
    run(cmake, "--install", build, "--prefix", str(prefix))
    run(str(prefix / "bin" / "fedhpc"), "--version")
    run(cmake, "-S", str(pathlib.Path(source, "tests", "install")), "-B", str(consumer), "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run(cmake, "--build", str(consumer))
    run(str(consumer / "consumer"))
print("installed, found, built against and run")
