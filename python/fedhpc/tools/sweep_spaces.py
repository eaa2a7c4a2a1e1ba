"""The spaces that a sweep draws its trials from."""

import hashlib
import math
import re
from dataclasses import dataclass

# name -> value at the share `u` in [0, 1) of the way from `low` to `high`
KINDS = {"uniform": lambda low, high, u: low + u * (high - low),
         "log_uniform": lambda low, high, u: low * (high / low) ** u,
         "integer": lambda low, high, u: low + math.floor(u * (high - low + 1))}
FORMS = "uniform(LOW, HIGH), log_uniform(LOW, HIGH), integer(LOW, HIGH) or a list of values"
DIGITS = 6  # significant ones of a number that is drawn


@dataclass(frozen=True)
class Space:
    """Numbers from `low` to `high`; an `integer` may be either end."""

    kind: str  # of KINDS
    low: float
    high: float


def read_space(text):
    """The Space that a text such as uniform(0, 1) stands for; None for other texts, ValueError with what is wrong."""
    match = re.fullmatch(r"(\w+)\s*\(([^()]*)\)", text.strip())
    if not match:
        if re.search(rf"\b({'|'.join(KINDS)})\s*\(", text):
            raise ValueError(f"is no space; allowed: {FORMS}")
        return None
    kind, ends = match[1], match[2].split(",")
    if kind not in KINDS:
        raise ValueError(f"has an unknown space '{kind}'; allowed: {FORMS}")
    try:
        low, high = (int(end) if kind == "integer" else float(end) for end in ends)
    except ValueError:
        raise ValueError(f"needs two {'whole ' if kind == 'integer' else ''}numbers, as in {kind}(1, 10)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError("must go from a smaller number to a larger one")
    if kind == "log_uniform" and low <= 0:
        raise ValueError("must begin above 0")
    return Space(kind, low, high)


def draw(space, seed, trial, key):
    """The text drawn for a key of a trial: from a Space or a list, by seed, trial and key alone."""
    digest = hashlib.sha256(f"{seed}/{trial}/{key}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    if not isinstance(space, Space):
        return space[math.floor(share * len(space))]
    value = KINDS[space.kind](space.low, space.high, share)
    return str(value) if space.kind == "integer" else f"{value:.{DIGITS}g}"
