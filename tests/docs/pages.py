"""Pages of the documentation, taken apart: headings, links, fenced blocks, words in back-quotes."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Fence:
    """A fenced block: its info string, its lines without the fence's own indentation, and where it begins."""

    info: str
    lines: list
    line: int  # of the opening fence, from 1
    above: str  # the last line of text before it


def slug(heading):
    """A heading's anchor, as GitHub makes it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


class Page:
    """One Markdown file."""

    def __init__(self, path):
        self.path = path
        self.name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        self.fences, self.prose, self.anchors = [], [], []
        fence, indent, mark, above = None, "", "", ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            opening = re.match(r"( *)(`{3,})(.*)$", line)
            if fence is None and opening:
                indent, mark = opening[1], opening[2]
                fence = Fence(opening[3].strip(), [], number, above)
            elif fence is not None and line.strip() == mark:
                self.fences.append(fence)
                fence, above = None, ""
            elif fence is not None:
                fence.lines.append(line.removeprefix(indent))
            else:
                self.prose.append((number, line))
                above = line if line.strip() else above
                heading = re.match(r"#{1,6} +(.*)", line)
                if heading:
                    anchor = slug(heading[1])
                    again = sum(one == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", one) is not None
                                for one in self.anchors)
                    self.anchors.append(f"{anchor}-{again}" if again else anchor)
        if fence is not None:
            raise ValueError(f"{self.name}:{fence.line}: this block is not closed")

    def paragraphs(self):
        """Prose with the number of its first line; a link or a quotation may run over a line's end."""
        text, first, last = "", 0, 0
        for number, line in self.prose + [(10**9, "")]:
            if text and (not line.strip() or number != last + 1):
                yield first, text
                text = ""
            if line.strip():
                first = first if text else number
                text += line.strip() + "\n"
            last = number

    def links(self):
        """(line, target) of each link and image that is not of the web."""
        for number, text in self.paragraphs():
            text = re.sub(r"(`+)(?:(?!`).)+?\1", "", text, flags=re.S)
            for target in re.findall(r"\]\(\s*([^)\s]+)\s*(?:\"[^\"]*\")?\)", text):
                if not re.match(r"[a-z]+:", target):
                    yield number, target

    def quoted(self):
        """(line, text) of all that stands in back-quotes."""
        for number, text in self.paragraphs():
            for _, words in re.findall(r"(`+)(.+?)\1(?!`)", text, flags=re.S):
                yield number, " ".join(words.split())


def all_pages():
    """Every Markdown file that git knows or would take; without git, every one outside of what builds leave."""
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True)
    names = git.stdout.split()
    if git.returncode != 0 or not names:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.md")
                 if path.relative_to(ROOT).parts[0] not in ("build", ".deps")]
    return [Page(ROOT / name) for name in sorted(set(names)) if (ROOT / name).exists()]
