"""One entry point: `python -m PACKAGE COMMAND`.

Commands are looked up by name and imported when they run, so that those that need no torch start
at once. A mistake of the user's ends in one sentence and exit code 2, never in a traceback.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence

from .practices.errors import explain

# Name, what it does, where it is.
COMMANDS = {
    "fit": ("train, into a new folder under runs/", ".training:fit"),
    "validate": ("measure a run's best checkpoint on the validation split", ".training:validate"),
    "test": ("measure a run's best checkpoint on the test split", ".training:test"),
    "predict": ("write a run's predictions to a CSV file", ".training:predict"),
    "export": ("write a run's best checkpoint as ONNX and check it", ".training:export"),
}


def commands() -> dict[str, tuple[str, str]]:
    """Return every command; the workbench adds its own where that folder is kept."""
    if importlib.util.find_spec(".workbench", __package__) is None:
        return COMMANDS
    more: dict[str, tuple[str, str]] = importlib.import_module(".workbench", __package__).COMMANDS
    return COMMANDS | more


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
    if name not in commands():
        sys.exit(f"error: there is no command {name!r}; the commands are {', '.join(commands())}.")
    module, function = commands()[name][1].split(":")
    try:
        getattr(importlib.import_module(module, __package__), function)(rest)
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(2)
