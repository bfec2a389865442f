"""Mistakes that their maker can mend are said in one sentence; everything else keeps its traceback."""

import argparse
import difflib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


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
    likeness = difflib.SequenceMatcher(b=name.lower())

    def distance(one: str) -> float:
        likeness.set_seq1(one.lower())
        return -likeness.ratio()

    return sorted(names, key=distance)


def explain(error: BaseException) -> str | None:
    """Return the sentence for a mistake of the user's, or None when `error` is a fault of the code."""
    text, chain = str(error), list(_chain(error))
    for one in chain:  # jsonargparse wraps what a constructor raises
        if isinstance(one, UserError):
            # A loader's worker process sends its traceback along; only the last line is for people.
            return str(one).rsplit("UserError: ", 1)[-1].strip()
    if isinstance(error, argparse.ArgumentError):
        # A file that does not fit is read a second time, which hides why it did not.
        told = [str(one) for one in chain if "Config file loop" not in str(one)]
        return next(filter(None, map(_wrong_name, map(str, chain))), None) or _shorten((told or [text])[0])
    if type(error).__name__ == "MisconfigurationException":  # Lightning's, named so that torch need not be imported
        return " ".join(text.split())
    if type(error).__name__ == "OutOfMemoryError":  # torch's; in the order of what costs least
        return (
            "the GPU's memory is full; halve data.batch_size and double trainer.accumulate_grad_batches (the same "
            "effective batch), then try trainer.precision bf16-mixed, model.gradient_checkpointing true, or smaller "
            f"inputs; configs/profile.yaml shows what is used ({text.splitlines()[0] if text else 'CUDA'})."
        )
    if isinstance(error, PermissionError):
        return f"{error.filename} may not be read or written; change its permissions or choose another folder."
    if isinstance(error, OSError) and error.errno == 28:
        return "the disk is full; free some space, then continue the run with fit --resume latest."
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error`, what it was raised from, and what was handled meanwhile."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# What jsonargparse says of a union: the branches that were not meant, and how it stores values.
_NOISE = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Expected a <class 'NoneType'>"
    r"|Given value type: .*|Given value: (NestedArg|\{|Namespace).*|Got value: Namespace.*"
    r"|Type collections\.abc\.Callable\S*( \S+\])? expects a function or a callable class:"
)

_MISSING = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NO_FILE = re.compile(r"Expected a path but (\S+) either not accessible")


def _wrong_name(text: str) -> str | None:
    """Return the sentence for a class or file that does not exist, with those that do."""
    if found := _MISSING.search(text):
        return _not_in(found[1], found[2])
    if not (found := _NO_FILE.search(text)):
        return None
    parts, module = found[1].split("."), ""
    for part in parts if not found[1].endswith(".yaml") else []:
        try:
            importlib.import_module(f"{module}.{part}" if module else part)
        except ImportError:
            break
        module = f"{module}.{part}" if module else part
    if module:
        return _not_in(module, parts[module.count(".") + 1])
    files = nearest(found[1], [str(path) for path in Path(found[1]).parent.glob("*.yaml")])
    there = f" (there are {', '.join(files)})" if files else ""
    return f"{found[1]} is neither a file{there} nor the full path of a class, package.module.Class."


def _not_in(module: str, name: str) -> str:
    names = nearest(name, _networks(module))
    return f"{module} has no {name}; it has {', '.join(names) or 'nothing of the kind'}."


def _networks(module: str) -> list[str]:
    """Return the network classes, and functions that make one, of `module`; of a package without any its modules."""
    found, torch = importlib.import_module(module), importlib.import_module("torch")

    def makes_network(member: Any) -> bool:
        kind = member if inspect.isclass(member) else getattr(member, "__annotations__", {}).get("return")
        return inspect.isclass(kind) and issubclass(kind, torch.nn.Module)

    names = [name for name, _ in inspect.getmembers(found, makes_network) if name[0] != "_"]
    return names or [one.name for one in pkgutil.iter_modules(getattr(found, "__path__", [])) if one.name[0] != "_"]


def _shorten(text: str) -> str:
    """Return jsonargparse's nested report as one sentence."""
    lines = [_NOISE.sub("", line.strip().removeprefix("- ")).strip(" :.") for line in text.splitlines()]
    sentence = ": ".join(line for line in lines if line).replace("::", ":")
    return f"{sentence}; the command's --help lists what is accepted."
