"""One entry point: `python -m PACKAGE COMMAND`.

Commands are looked up by name and imported when they run, so that those that need no torch start
at once. A mistake of the user's ends in one sentence and exit code 2; TRACEBACK=1 in the environment shows where.
"""

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .mistakes import explain
from .practices.errors import one_of

# Name, what it does, where it is.
COMMANDS = {
    "fit": ("train, into a new folder under runs/", ".training:fit"),
    "validate": ("measure a run's best checkpoint on the validation split", ".training:validate"),
    "test": ("measure a run's best checkpoint on the test split", ".training:test"),
    "predict": ("write a run's predictions to a CSV file", ".training:predict"),
    "export": ("write a run's best checkpoint as ONNX and check it", ".training:export"),
}


def workbench() -> Any:
    """Return the workbench, or None where that folder was deleted."""
    kept = importlib.util.find_spec(".workbench", __package__) is not None
    return importlib.import_module(".workbench", __package__) if kept else None


def commands() -> dict[str, tuple[str, str]]:
    """Return every command; the workbench adds its own."""
    return COMMANDS | (workbench().COMMANDS if workbench() else {})


def load(place: str) -> Any:
    """Return the function at `place`, written .module:function."""
    module, function = place.split(":")
    return getattr(importlib.import_module(module, __package__), function)


def after(event: str, *arguments: Any) -> None:
    """Do what the workbench adds to the end of `event`. That it fails must not cost the run, which is complete."""
    for place in workbench().AFTER.get(event, ()) if workbench() else ():
        try:
            load(place)(*arguments)
        except Exception as error:
            logging.getLogger(__name__).warning("%s: %s", place, explain(error) or repr(error), exc_info=True)


def usage() -> str:
    """Return the list of commands."""
    lines = [f"  {name:<10}{what}" for name, (what, _) in commands().items()]
    ending = "Each explains itself: COMMAND --help."
    return "\n".join([f"usage: python -m {__package__} COMMAND [OPTIONS]", "", *lines, "", ending])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (default: the command line) name; exit 2 on a mistake."""
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments)] or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
        return
    guarded(lambda: load(commands()[one_of("the command", name, commands())][1])(rest))


def guarded(command: Callable[[], None]) -> None:
    """Run `command`; a mistake of the user's ends in one sentence and exit code 2."""
    try:
        command()
    except Exception as error:
        sentence = explain(error)
        if sentence is None or os.environ.get("TRACEBACK"):
            raise
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
