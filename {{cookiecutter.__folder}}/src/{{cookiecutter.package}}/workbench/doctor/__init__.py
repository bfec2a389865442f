"""`python -m PACKAGE doctor`: in a minute, what would spoil a long run; takes the options of fit.

A check is a function in the file of its family, with `@check` above it; tests/workbench/test_doctor.py
wants a fault for it to catch.
"""

import importlib
import json
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from lightning.pytorch.utilities.seed import isolate_rng

from ...mistakes import Parser, explain
from .project import CHECKS, WAITS, Project, Result, Skip

HERE = Path(__file__).parent
for family in ("data", "model", "machine", "export"):  # the order of their checks
    importlib.import_module(f".{family}", __package__)
FIRST = ("configuration", "samples-read", "batches", "layer-shapes")  # the others look at what these make
LONGEST = 30.0  # seconds that one check may take; a loader that hangs takes longer


def examine(project: Project, names: Sequence[str], seconds: float) -> Iterator[tuple[str, Result]]:
    """Yield name and result of the checks `names`, and of those that come first; what `seconds` do not allow, skip."""
    end = time.monotonic() + seconds
    project.folder.mkdir(parents=True, exist_ok=True)
    for name in [name for name in CHECKS if name in (*names, *FIRST)]:
        found, left = list[Result](), end - time.monotonic()
        # In a thread, as what hangs cannot be ended, only left behind.
        thread = threading.Thread(target=attempt, args=(name, project, found), daemon=True)
        if left > 0:
            with isolate_rng():
                thread.start()
                thread.join(min(left, LONGEST))
        late = Result("skip", f"the {seconds:g} s are over; take more by --seconds")
        hung = Result("skip", f"no end in {LONGEST:g} s, which a large network may take")
        if CHECKS[name].__module__.endswith(".data"):
            remedy = "Look whether reading a sample, or a worker process, hangs."
            hung = Result("fail", f"no end in {LONGEST:g} s", remedy)
        project.left_behind = project.left_behind or thread.is_alive()
        yield name, found[0] if found else hung if left > LONGEST else late


def attempt(name: str, project: Project, found: list[Result]) -> None:
    """Add to `found` what check `name` finds; one that raises fails."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(CHECKS[name](project))
    except Skip as reason:
        found.append(Result("skip", str(reason)))
    except Exception as error:
        places = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        own = [f"{p}, line {n}" for p, n in places if HERE.parents[1] in p.parents and HERE not in p.parents]
        place = f"Look at {own[-1] if own else 'the class that the configuration names'}."
        sentence = explain(error)
        what = ": ".join([type(error).__name__, *str(error).strip().splitlines()][:2])
        found.append(Result("fail", sentence or what, "Mend what the sentence names." if sentence else place))


def main(arguments: Sequence[str]) -> None:
    """Print a line for each check; exit with 1 if one fails."""
    from ... import training as commands
    from ...progress import quieten

    parser = Parser(prog="doctor", add_help=False, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--only", action="append", choices=list(CHECKS), metavar="NAME", help=", ".join(CHECKS))
    parser.add_argument("--seconds", type=float, default=50.0, help="after which no check goes on (default: 50)")
    options, rest = parser.parse_known_args(arguments)
    build = partial(commands.TrainingCLI, commands._split(rest)[1], commands.DEFAULT)
    if {"-h", "--help"} & set(rest):
        print(parser.format_help())
        build()
    quieten()
    results, begin, shown = {}, time.monotonic(), ""
    logging.disable(logging.WARNING)  # what was chosen is said by the checks
    project = Project(build)
    for name, result in examine(project, options.only or list(CHECKS), options.seconds):
        title = CHECKS[name].__module__.rsplit(".", 1)[-1]
        results[name] = {"family": title, **asdict(result)}
        if not options.json and result.figure != WAITS:
            print(f"\n{title}\n" * (title != shown) + line(name, result), flush=True)
            shown = title
    logging.disable(logging.NOTSET)
    print(json.dumps(results, indent=2) if options.json else ending(results, time.monotonic() - begin), flush=True)
    failed = any(result["state"] == "fail" for result in results.values())
    if project.left_behind:
        os._exit(failed)  # a thread that still computes would make the interpreter's end crash
    if failed:
        sys.exit(1)


def line(name: str, result: Result) -> str:
    """Return what is printed of a check."""
    state = result.state if result.state in ("pass", "skip") else result.state.upper()
    return f"  {state}  {name:<18}  {result.figure}" + f"\n{' ' * 28}-> {result.remedy}" * bool(result.remedy)


def ending(results: dict[str, dict[str, str]], seconds: float) -> str:
    """Return the last line: how it stands, and what to do next."""
    states, run = Counter(one["state"] for one in results.values()), f"python -m {__package__.split('.')[0]}"
    counts = f"{', '.join(f'{number} {state}' for state, number in states.items())} in {seconds:.0f} s"
    if states["fail"]:
        return f"\n{counts}. Mend the first fail first, as others may follow from it, or wait; then again: {run} doctor"
    return f"\n{counts}. Next: {run} fit"
