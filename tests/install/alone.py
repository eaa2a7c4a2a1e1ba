"""Commands that see an installation, and not the sources that it was made from."""

import pathlib
import shlex
import subprocess
import sys


def run(*command, **how):
    """What a command prints; the test ends where it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **how)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def check(holds, message):
    if not holds:
        sys.exit(message)


def without_sources(folder, source, python):
    """What to put before a command that shall not see the sources: an empty folder lies over them. Python's libraries,
    which may lie among them, are in folder/libraries."""
    found = run(python, "-c", "import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])").strip()
    libraries = folder / "libraries"
    if not libraries.exists():
        libraries.mkdir()
    hide = (f"mount --bind {shlex.quote(found)} {shlex.quote(str(libraries))} && "
            f"mount -t tmpfs none {shlex.quote(source)} && cd {shlex.quote(str(folder))} && exec \"$@\"")
    for rights in ([], ["--map-root-user"]):
        prefix = ["unshare", "--mount", *rights, "sh", "-c", hide, "sh"]
        if libraries.is_symlink():
            break
        if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
            return prefix
    print("no mount namespace here: the sources stay in sight")
    if not libraries.is_symlink():
        libraries.rmdir()
        libraries.symlink_to(found)
    return []
