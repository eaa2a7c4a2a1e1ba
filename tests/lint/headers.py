"""Every public header compiles on its own, and may be included twice.

usage: headers.py SOURCE_DIR BUILD_DIR

LibTorch's header of tensors takes seconds to parse. Headers that include it get it precompiled, and nothing else; the
others get nothing.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from sources import NOT_OURS, Sources

sources = Sources(sys.argv[1], "headers")
build = pathlib.Path(sys.argv[2]).resolve() / "headers"
build.mkdir(exist_ok=True)
INCLUDE = sources.root / "include"
TENSORS = "ATen/core/Tensor.h"


def command() -> list[str]:
    """The compiler and its flags for a source of the library."""
    entries = json.loads((build.parent / "compile_commands.json").read_text())
    entry = next(one for one in entries if one["file"] == str(sources.root / "src/rounds/mean.cpp"))
    return shlex.split(re.sub(rf"{NOT_OURS}| -o \S+| -c \S+", "", entry["command"]))


def precompiled(compiler: list[str]) -> pathlib.Path:
    header = build / "tensors.hpp"
    header.write_text(f"#include <{TENSORS}>\n")
    subprocess.run([*compiler, "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    return header


def main() -> int:
    compiler = command()
    version = subprocess.run([compiler[0], "--version"], capture_output=True, text=True).stdout
    what = (version, " ".join(compiler))
    headers = sorted((INCLUDE / "fedhpc").rglob("*.hpp"))
    left = [header for header in headers if not sources.stamp(header, *what).exists()]
    tensors = precompiled(compiler) if left else None

    def complaint(header: pathlib.Path) -> str:
        line = f'#include "{header.relative_to(INCLUDE)}"\n'
        with_tensors = any(f"<{TENSORS}>" in one.read_text() for one in sources.closure(header))
        first = ["-include", str(tensors)] if with_tensors else []
        done = subprocess.run([*compiler, *first, "-fsyntax-only", "-x", "c++", "-"], input=2 * line,
                              capture_output=True, text=True)
        if done.returncode == 0:
            sources.stamp(header, *what).touch()
            return ""
        return done.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(complaint, left) if text]
    print("\n".join(complaints) or f"headers: {len(headers)} compile on their own")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
