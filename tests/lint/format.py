"""All C++ sources are as clang-format leaves them.

usage: format.py SOURCE_DIR CLANG_FORMAT
"""

import pathlib
import subprocess
import sys

source = pathlib.Path(sys.argv[1])
files = sorted(file for folder in ("include", "src", "python", "tests", "bench", "examples")
               for file in (source / folder).rglob("*.[ch]pp"))
if not files:
    sys.exit(f"no sources below {source}")
done = subprocess.run([sys.argv[2], "--dry-run", "--Werror", *map(str, files)],
                      capture_output=True, text=True)
if done.returncode:
    print("\n".join(done.stderr.splitlines()[:30]))
    print("run: clang-format -i on the files above")
sys.exit(done.returncode)
