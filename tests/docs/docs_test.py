"""What the documentation says of the sources is so: links, quoted code, keys, paths, and no page out of sight.

docs_test.py --fedhpc PROGRAM [unittest's arguments]
"""

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pages import ROOT, Page, all_pages, slug  # noqa: E402

FOLDERS = ("include", "src", "python", "tests", "tools", "docs", "configs", "jobs", "cmake", "bench", "examples")
ENDINGS = ("h5", "ini", "csv", "hpp", "cpp", "py", "sh", "so", "png", "md", "lock", "sbatch", "xz", "gz", "def", "yml")
program = None


def keys_of_program():
    """{section: {name}} of every key, and the methods, which may stand between section and name."""
    text = subprocess.run([program, "help", "keys"], check=True, capture_output=True, text=True).stdout
    keys = {}
    for section, name in re.findall(r"^([a-z_]+)\.([a-z_0-9]+)$", text, re.M):
        keys.setdefault(section, set()).add(name)
    return keys


def methods():
    text = (ROOT / "src/algorithms/algorithms.def").read_text()
    return re.findall(r"^FEDHPC_ALGORITHM\((\w+),", text, re.M)


def dead_links(page):
    for line, target in page.links():
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        if not path.exists():
            yield f"{page.name}:{line}: there is no {target}"
        elif not name and path.suffix != ".md":
            continue
        elif path.is_dir():
            yield f"{page.name}:{line}: {target} is a folder, which a site cannot show; link a page"
        elif anchor and path.suffix == ".md" and anchor not in Page(path).anchors:
            yield f"{page.name}:{line}: {name or page.name} has no heading #{anchor}"


def holds(source, block):
    """Whether a file has these lines, one after the other; a leading indentation that all share does not count."""
    wanted = [line.rstrip() for line in textwrap.dedent("\n".join(block)).splitlines()]
    lines = source.read_text(encoding="utf-8").splitlines()
    for first in range(len(lines) - len(wanted) + 1):
        window = textwrap.dedent("\n".join(lines[first:first + len(wanted)])).splitlines()
        if [line.rstrip() for line in window] == wanted:
            return True
    return False


def false_quotations(page):
    for fence in page.fences:
        match = re.fullmatch(r"cpp (\S+)", fence.info)
        if not match:
            continue
        source = ROOT / match[1]
        if not source.is_file():
            yield f"{page.name}:{fence.line}: there is no {match[1]}"
        elif not fence.lines or not holds(source, fence.lines):
            yield f"{page.name}:{fence.line}: {match[1]} has no such lines"


def unknown_keys(page, keys, names):
    """A key in back-quotes, alone or before '=' and a value, and every --section.key of a command."""
    sections = "|".join(keys)
    places = []
    for line, words in page.quoted():
        places += [(line, key) for key in re.findall(rf"^((?:{sections})\.[a-z_0-9.]+)(?=$| ?=)", words)]
        places += [(line, key) for key in re.findall(rf"(?:^| )--((?:{sections})\.[a-z_0-9.]+)", words)]
    for fence in page.fences:
        places += [(fence.line, key) for text in fence.lines
                   for key in re.findall(rf"(?:^| )--((?:{sections})\.[a-z_0-9.]+)", text)]
    for line, key in places:
        section, *method, name = key.split(".")
        if name in ENDINGS or name == "":
            continue
        known = name in keys[section] and (not method or (section == "algorithm" and method[0] in names))
        if not known:
            yield f"{page.name}:{line}: there is no key {key}"


def stands_for(path):
    """A path as a pattern: <name>, NAME, METHOD and * stand for something that is there."""
    return re.sub(r"<[a-z]+>|\b(?:NAME|METHOD|PAPER|PROGRAM)\b", "*", path)


def unknown_paths(page):
    """A path in back-quotes below a folder of the project, or of a source below its room."""
    rooms = {one.name for one in (ROOT / "src").iterdir() if one.is_dir()}
    given = {match[1] for fence in page.fences if (match := re.search(r"`([^`]+)`:$", fence.above))}
    for line, words in page.quoted():
        path = words.rstrip("/")
        folder, _, rest = path.partition("/")
        if not re.fullmatch(r"[\w./*<>-]+", path) or path in given:
            continue
        if folder in FOLDERS and words != folder:
            places = [""]
        elif folder in rooms and path.endswith((".hpp", ".cpp")):
            places = ["include/fedhpc/", "src/", "tests/"]
        else:
            continue
        pattern = stands_for(path)
        # A name without its ending stands for header and source, or for a test's binary.
        if not any(any(ROOT.glob(place + pattern + ending)) for place in places for ending in ("", ".*")):
            yield f"{page.name}:{line}: there is no {words}"


def out_of_sight(pages, start="docs/README.md", below="docs/"):
    by_name = {page.name: page for page in pages}
    seen, found = set(), [start]
    while found:
        name = found.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        page = by_name[name]
        for _, target in page.links():
            path = (page.path.parent / target.partition("#")[0]).resolve()
            if path.suffix == ".md" and path.is_relative_to(ROOT):
                found.append(path.relative_to(ROOT).as_posix())
    return [f"no page leads from {start} to {name}" for name in by_name if name.startswith(below) and name not in seen]


class Documentation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = all_pages()

    def test_there_are_pages(self):
        self.assertGreater(len(self.pages), 20)
        self.assertIn("docs/semantics.md", [page.name for page in self.pages])

    def none_of(self, complaints):
        self.assertEqual(list(complaints), [])

    def test_links_and_images(self):
        self.none_of(one for page in self.pages for one in dead_links(page))

    def test_quoted_code(self):
        self.none_of(one for page in self.pages for one in false_quotations(page))

    def test_keys(self):
        keys, names = keys_of_program(), methods()
        self.assertGreater(sum(map(len, keys.values())), 100)
        self.none_of(one for page in self.pages for one in unknown_keys(page, keys, names))

    def test_paths(self):
        self.none_of(one for page in self.pages for one in unknown_paths(page))

    def test_every_page_is_found(self):
        self.none_of(out_of_sight(self.pages))

    def test_every_method_has_a_page(self):
        folder = ROOT / "docs/methods"
        if not folder.exists():
            self.skipTest("docs/methods is not there yet")
        self.none_of(f"there is no docs/methods/{name}.md" for name in methods()
                     if not (folder / f"{name}.md").exists())


class Checker(unittest.TestCase):
    """What the checks refuse."""

    def page(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "page.md"
        path.write_text(text.replace("DOCS", str(ROOT / "docs")))
        return Page(path)

    def test_links(self):
        page = self.page("# A `b` page\n[a](DOCS/install.md#what-it-needs) [b](#a-b-page)\n[c](no.md)\n\n"
                         "![d](images/no.png) [e](DOCS/install.md#no) `[f](no.md)` [g\nh](no.md)\n[i](DOCS/images)\n")
        self.assertEqual([one.split(": ", 1)[1].split(" ")[-1] for one in dead_links(page)],
                         ["no.md", "images/no.png", "#no", "no.md", "page"])

    def test_quotations(self):
        source = "src/algorithms/fedavg.cpp"
        lines = (ROOT / source).read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("  ") and lines[i + 1].startswith("  "))
        true = textwrap.dedent("\n".join(lines[at:at + 2]))
        page = self.page(f"```cpp {source}\n{true}\n```\n```cpp {source}\n{true}x\n```\n```cpp src/no.cpp\nx\n```\n"
                         "1. In a list:\n\n" + textwrap.indent(f"```cpp {source}\n{true}\n```\n", "   ") + "```cpp\nx\n```\n")
        self.assertEqual([one.split(":")[1] for one in false_quotations(page)], ["5", "9"])

    def test_keys(self):
        keys = {"run": {"seed"}, "algorithm": {"mu"}}
        page = self.page("`run.seed` `run.sed` `run.seed = 3` `--run.seeds=1` `run.ini` `algorithm.fedprox.mu` "
                         "`algorithm.fed.mu` `run.x()` `run.*`\n```\nfedhpc run a.ini --run.no=1 run.py\n```\n")
        self.assertEqual([one.split()[-1] for one in unknown_keys(page, keys, ["fedprox"])],
                         ["run.sed", "run.seeds", "algorithm.fed.mu", "run.no"])

    def test_paths(self):
        page = self.page("`src/app/main.cpp` `src/no.cpp` `configs/algorithms/<name>.ini` `rounds/round.hpp` "
                         "`rounds/no.hpp` `tests/no_*.py` `results/x.h5`\n\n`configs/sweeps/new.ini`:\n\n```\n[sweep]\n```\n")
        self.assertEqual([one.split()[-1] for one in unknown_paths(page)], ["src/no.cpp", "rounds/no.hpp", "tests/no_*.py"])

    def test_anchors(self):
        self.assertEqual([slug("Two runs: `tools/compare.py`"), slug("1. A [link](x.md), and\tmore")],
                         ["two-runs-toolscomparepy", "1-a-link-andmore"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedhpc", required=True)
    options, rest = parser.parse_known_args()
    program = options.fedhpc
    unittest.main(argv=[sys.argv[0], *rest])
