"""Configurations as the program reads them: INI text, and files that start from others (docs/decisions/0033)."""

import re
from pathlib import Path

from .method_keys import DEFAULT_METHOD, NAME, OF_ALL_METHODS, SECTION, of_one_method
from .result_file import ResultError

ESCAPES = {"n": "\n", "r": "\r"}  # in a quoted value; other characters behind a backslash stand for themselves


def parse_config(text):
    """The INI text as {"section.key": value}; `#` starts a comment outside double quotes, as in the simulator."""
    values, places, section = {}, {}, ""
    for number, line in enumerate(text.split("\n"), 1):
        quoted = re.fullmatch(r'([^=#]*)=\s*"((?:[^"\\]|\\.)*)"\s*(?:#.*)?', line)
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if quoted:
            key, value = quoted[1], re.sub(r"\\(.)", lambda mark: ESCAPES.get(mark[1], mark[1]), quoted[2])
        elif line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip() + "."
            continue
        elif "=" in line:
            key, value = map(str.strip, line.split("=", 1))
        else:
            raise ResultError(f"line {number} of the configuration is neither a [section] nor key=value: {line}")
        key = section + key.strip()
        if key in values:
            raise ResultError(f"line {number}: key '{key}' is given twice (first in line {places[key]}); keep one")
        values[key], places[key] = value, number
    return values


def read_config(path):
    """What the configuration `path` and its bases say, as {"section.key": value}; ResultError names the file at fault."""
    files, said = [Path(path)], []
    while True:
        file = files[-1]
        try:
            own = parse_config(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ResultError) as error:
            reason = getattr(error, "strerror", "not a text") if not isinstance(error, ResultError) else error
            raise ResultError(f"{file}: {reason}" + (f" (the base of {files[-2]})" if said else "")) from None
        base = own.pop("base", None)
        said.append(own)
        if base is None:
            break
        files.append(file.parent / base)
        if any(files[-1].resolve() == earlier.resolve() for earlier in files[:-1]):
            raise ResultError(f"{file}: base {base} closes a circle")
    settings = {}
    for own in reversed(said):
        settings = over(settings, own)
    return settings


def over(base, own):
    """The settings of a file with those of its base below them. What another method than the file's own has in the
    base stands under that method's name."""
    method = base.get(NAME)
    if method and own.get(NAME, method) != method:
        foreign = [key for key in base if key.startswith(SECTION) and not of_one_method(key)
                   and key not in OF_ALL_METHODS | {NAME}]
        named = {f"{SECTION}{method}.{key.removeprefix(SECTION)}": base[key] for key in foreign}
        base = {**named, **{key: value for key, value in base.items() if key not in foreign}}
    section = f"{SECTION}{own.get(NAME, method or DEFAULT_METHOD)}."
    overruled = {section + key.removeprefix(SECTION) for key in own if key.startswith(SECTION)}
    return {**{key: value for key, value in without_rivals(base, own).items() if key not in overruled}, **own}


def without_rivals(base, settings):
    """The base's settings, without a number of local steps where local epochs are set instead, or the reverse."""
    rivals = {"train.local_steps": "train.local_epochs", "train.local_epochs": "train.local_steps"}
    return {key: value for key, value in base.items() if rivals.get(key) not in settings}
