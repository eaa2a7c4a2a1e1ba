"""Lays out what the documentation site is made of: docs_site.py FOLDER

Copies the pages, and the files to which they link, to the same places below FOLDER. A file that is as it was keeps its time,
and what no page needs any more is removed. A folder with other files is refused.
"""

import re
import shutil
import sys
from pathlib import Path

from .project import ROOT, needed

PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "results/*.md", "tools/papers/*.md")


def linked(page):
    """Files of the project to which a page links, pages among them."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(\s*([^)#\s]+)", text):
        path = (page.parent / target).resolve()
        if not re.match(r"[a-z]+:", target) and path.is_relative_to(ROOT) and path.is_file():
            yield path


def holds_other_files(folder):
    """Whether it holds what an earlier call has not laid out there, as the project itself does."""
    if ROOT.is_relative_to(folder) or (folder / ".git").exists():
        return True
    return folder.is_dir() and any(folder.iterdir()) and not (folder / "docs" / "README.md").is_file()


def main(arguments):
    if len(arguments) != 1:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    try:
        needed("tools/site")
    except FileNotFoundError as error:
        print(f"docs_site: {error}", file=sys.stderr)
        return 2
    if holds_other_files(folder):
        print(f"docs_site: {folder} holds other files, which would be removed; give a new folder", file=sys.stderr)
        return 2
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    wanted = pages | {path for page in pages for path in linked(page)}
    kept = set()
    for path in sorted(wanted):
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)
        kept.add(copy)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in kept:
            path.unlink()
    return 0
