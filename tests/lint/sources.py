"""What the checks of the sources share: what a file includes, and stamps of what has passed.

A stamp is named by a digest of all that a check depends on, in $FEDHPC_STAMPS (~/.cache/fedhpc): what passed is not
looked at again, in no clone of this machine, until something it depends on changes.
"""

import functools
import hashlib
import os
import pathlib
import re

# In a command of the compilation database: a launcher, and a header that the database's compiler has precompiled, as GCC and
# as Clang name it. Other compilers, and checks of what a file includes itself, want neither.
NOT_OURS = r"^.*?ccache |-Winvalid-pch|(?:-Xclang )?-include(?:-pch)? (?:-Xclang )?\S*cmake_pch\.hxx(?:\.pch)?"


class Sources:
    """The sources of a checkout; `check` names the folder of its stamps."""

    def __init__(self, root: str, check: str):
        self.root = pathlib.Path(root).resolve()
        cache = os.environ.get("FEDHPC_STAMPS") or pathlib.Path.home() / ".cache/fedhpc"
        self.stamps = pathlib.Path(cache) / check
        self.stamps.mkdir(parents=True, exist_ok=True)

    @functools.cache
    def includes(self, file: pathlib.Path) -> frozenset[pathlib.Path]:
        """The project's files that a file includes itself."""
        named = re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE)
        folders = [file.parent, *(self.root / folder for folder in ("include", "src", "tests"))]
        found = {folder / name for name in named for folder in folders if (folder / name).is_file()}
        return frozenset(path.resolve() for path in found)

    @functools.cache
    def closure(self, file: pathlib.Path) -> tuple[pathlib.Path, ...]:
        """A file and all it includes of the project."""
        seen, left = set(), [file]
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left.extend(self.includes(one))
        return tuple(sorted(seen))

    @functools.cache
    def digest(self, file: pathlib.Path) -> str:
        """Of a file and all it includes of the project."""
        state = hashlib.sha256()
        for one in self.closure(file):
            state.update(str(one.relative_to(self.root)).encode() + one.read_bytes())
        return state.hexdigest()

    def stamp(self, file: pathlib.Path, *what: str) -> pathlib.Path:
        """The stamp of a file, checked by a tool and with flags that `what` describes, wherever the checkout lies."""
        text = "\n".join([self.digest(file), *(one.replace(str(self.root), "") for one in what)])
        return self.stamps / hashlib.sha256(text.encode()).hexdigest()
