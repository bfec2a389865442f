"""A mistake that its maker can mend is one sentence; mistakes.py says it, everything else keeps its traceback."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What was given cannot work. The message names it, what was expected, and what to do."""


def one_of(argument: str, name: str, known: Iterable[str]) -> str:
    """Return `name`, which must be one of `known`.

    Raises:
        UserError: It is none of them; all are listed, the most alike first.
    """
    names = list(known)
    if name not in names:
        raise UserError(f"{argument} is {name!r}, but must be one of {', '.join(nearest(name, names))}.")
    return name


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return `names`, the most like `name` first."""
    return sorted(names, key=lambda one: -difflib.SequenceMatcher(None, one.lower(), name.lower()).ratio())
