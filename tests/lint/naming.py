"""clang-tidy's naming rules (.clang-tidy) over all sources.

usage: naming.py SOURCE_DIR BUILD_DIR CLANG_TIDY

Parsing LibTorch's headers takes seconds a file, so a file that passed is not looked at again until it,
a header of the project or the rules change: its stamp in BUILD_DIR/naming holds a digest of all that.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

source, build, tidy = (pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3])
stamps = build / "naming"
stamps.mkdir(exist_ok=True)


def digest(files: list[pathlib.Path]) -> str:
    state = hashlib.sha256()
    for file in files:
        state.update(str(file.relative_to(source)).encode() + file.read_bytes())
    return state.hexdigest()


def database() -> pathlib.Path:
    """compile_commands.json without what clang does not know: gcc's warnings and precompiled header."""
    commands = json.loads((build / "compile_commands.json").read_text())
    for entry in commands:
        without = re.sub(r"-include \S*cmake_pch\.hxx|-Winvalid-pch|-Werror|^.*?ccache ", "", entry["command"])
        entry["command"] = without + " -Wno-everything"
    folder = stamps / "database"
    folder.mkdir(exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return folder


def check(file: pathlib.Path, folder: pathlib.Path, shared: str) -> str:
    """Returns what clang-tidy complains of, "" when nothing."""
    stamp = stamps / (hashlib.sha256(str(file.relative_to(source)).encode()).hexdigest() + ".ok")
    want = digest([file]) + shared
    if stamp.exists() and stamp.read_text() == want:
        return ""
    done = subprocess.run([tidy, "-p", str(folder), "--quiet", str(file)], capture_output=True, text=True)
    complaints = [line for line in done.stdout.splitlines() if ": error:" in line or ": warning:" in line]
    if done.returncode == 0 and not complaints:
        stamp.write_text(want)
        return ""
    return "\n".join(complaints) or done.stderr or f"{file}: clang-tidy failed"


def main() -> int:
    headers = sorted(file for folder in ("include", "src", "tests")
                     for pattern in ("*.hpp", "*.def") for file in (source / folder).rglob(pattern))
    shared = digest([source / ".clang-tidy", *headers])
    folder = database()
    known = {entry["file"] for entry in json.loads((folder / "compile_commands.json").read_text())}
    files = sorted(file for room in ("src", "tests") for file in (source / room).rglob("*.cpp")
                   if str(file) in known)
    if not files:
        print("no sources in the compilation database")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(lambda file: check(file, folder, shared), files) if text]
    lines = "\n".join(complaints).splitlines()
    print("\n".join(lines[:40]) or f"naming: {len(files)} files follow the rules")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
