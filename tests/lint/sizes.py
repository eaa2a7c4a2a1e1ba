"""A function has 60 lines at most and a file 300: what is longer has two subjects, or is named here with its reason.

usage: sizes.py SOURCE_DIR
"""

import pathlib
import re
import sys

MOST_OF_FUNCTION, MOST_OF_FILE = 60, 300
KEYS = "one key after the other"
LONG_FILES = {
    "src/algorithms/simnet.cpp": "a method, its keys and its two problems",
    "src/gpu/kernels/table.hpp": "one entry after the other of one table",
    "src/models/script_model.cpp": "a network in one piece, how it is tried and how it computes",
    "src/training/local_step.cpp": "a step of every kind of trainer",
}
LONG_FUNCTIONS = {
    "src/algorithms/sfedhp.cpp: declare": KEYS,
    "src/algorithms/simnet.cpp: declare": KEYS,
    "src/data/options.cpp: declare_partition": KEYS,
    "src/data/options.cpp: declare_source": KEYS,
    "src/rounds/weighted_sum_on_device.cpp: exact_total_on_device": "one chain of tensors, each made of the last",
    "src/training/evaluator_on_device.cpp: score_on_device": "two loops over one set of buffers",
    "src/engine/config.cpp: declare": KEYS,
    "src/training/options.cpp: declare": KEYS,
}
# Comments and literals, in which braces mean nothing; lines stay.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
NO_FUNCTION = re.compile(r"\s*(?:template\s*<.*>\s*)?(?:namespace|class|struct|enum|union|extern)\b", re.DOTALL)


def functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, number of lines) of every function that is not inside another."""
    text = NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    text = re.sub(r"^#.*(?:\\\n.*)*", lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.MULTILINE)
    found = []
    head, depth, open_at = 0, 0, None  # where the declaration in hand begins; braces; (its depth, name, place)
    for match in re.finditer(r"[{};]", text):
        place, letter = match.start(), match[0]
        declaration = text[head:place]
        if letter == "{":
            named = re.search(r"(\w+|operator\W+)\s*\(", declaration)
            if open_at is None and named and not NO_FUNCTION.match(declaration):
                open_at = (depth, named[1], head + len(declaration) - len(declaration.lstrip()))
            depth += 1
        elif letter == "}":
            depth -= 1
            if open_at and depth == open_at[0]:
                first = text.count("\n", 0, open_at[2]) + 1
                found.append((open_at[1], first, text.count("\n", 0, place) + 2 - first))
                open_at = None
        # Members that a constructor initialises with braces belong to its declaration.
        if open_at is None:
            head = place + 1
    return found


def problems(source: pathlib.Path) -> list[str]:
    found = []
    files = sorted(file for folder in ("include", "src") for file in (source / folder).rglob("*.[ch]pp"))
    if len(files) < 20:
        return [f"only {len(files)} sources below {source}: wrong folder?"]
    long_files, long_functions = dict(LONG_FILES), dict(LONG_FUNCTIONS)
    for file in files:
        name, text = str(file.relative_to(source)), file.read_text()
        lines = text.count("\n")
        if lines > MOST_OF_FILE and long_files.pop(name, None) is None:
            found.append(f"{name}: {lines} lines, {MOST_OF_FILE} at most")
        for function, first, size in functions(text):
            if size > MOST_OF_FUNCTION and long_functions.pop(f"{name}: {function}", None) is None:
                found.append(f"{name}:{first}: {function} has {size} lines, {MOST_OF_FUNCTION} at most")
    return found + [f"{name}: no longer long; take it off the list" for name in (*long_files, *long_functions)]


if __name__ == "__main__":
    messages = problems(pathlib.Path(sys.argv[1]))
    print("\n".join(messages) or "sizes: every file and function is short enough")
    sys.exit(1 if messages else 0)
