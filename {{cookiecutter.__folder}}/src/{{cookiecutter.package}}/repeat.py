"""One result is an anecdote: `fit --repeat 3` trains with three seeds, `fit --folds 5` on five folds.

Every run is a process and a folder of its own, so nothing leaks from one into the next, the logger is
closed between them, and each can be resumed by itself. What belongs together is in runs/<group>.json.
"""

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from .practices.errors import UserError
from .record import read
from .resume import SIGNALS
from .runs import RUNS, SHARED

# Student's t for 95 %, by degrees of freedom from 1.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


def repeat(options: argparse.Namespace, arguments: Sequence[str], default: Path) -> None:
    """Train a new group of runs, or with `options.resume`, a group's file, what is missing of an old one."""
    if options.resume:
        file = Path(options.resume)
        if not file.is_file():
            raise UserError(f"{file} does not exist; --resume needs the file of a group, runs/<group>.json.")
        group = json.loads(file.read_text(encoding="utf-8"))
    else:
        group = new_group(options, arguments, default)
        file = RUNS / f"{group['name']}.json"
        write(file, group)
    for run, more in group["runs"].items():
        train(RUNS / run, [*group["arguments"], *more], file)
    group["summary"] = summary([read(RUNS / run)["best"] for run in group["runs"]])
    write(file, group)
    print(f"\n{table(group['summary'])}\nWritten to {file}; what differs: compare {file}")


def new_group(options: argparse.Namespace, arguments: Sequence[str], default: Path) -> dict[str, Any]:
    """Return a group's name, its runs with the arguments that set each apart, and the common arguments."""
    kind, number = ("folds", options.folds) if options.folds else ("repeat", options.repeat)
    if (options.folds and options.repeat) or not number.isdigit() or int(number) < 2:
        raise UserError("give either --repeat or --folds, with a whole number from 2.")
    if os.environ.get("TORCHELASTIC_RUN_ID"):
        raise UserError(f"--{kind} starts its runs by itself and cannot run under torchrun; start it without.")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--seed_everything", type=int)
    known, rest = parser.parse_known_args(arguments)
    seed = known.seed_everything
    if seed is None:
        seed = yaml.safe_load(default.read_text(encoding="utf-8"))["seed_everything"]
    if kind == "folds":
        each = {f"fold{i}": [f"--data.fold=[{i},{number}]", f"--seed_everything={seed}"] for i in range(int(number))}
    else:
        each = {f"seed{seed + i}": [f"--seed_everything={seed + i}"] for i in range(int(number))}
    name = time.strftime(f"%Y%m%d-%H%M%S-{kind}")
    return {"name": name, "arguments": rest, "runs": {f"{name}-{key}": more for key, more in each.items()}}


def train(run: Path, arguments: list[str], file: Path) -> None:
    """Train `run` in a process of its own: from the start, from its last checkpoint, or not, if it has finished."""
    if read(run).get("status") == "finished":
        return
    run.mkdir(parents=True, exist_ok=True)
    resumed = (run / "config.yaml").is_file()
    words = [f"--resume={run}"] if resumed else arguments
    environment = os.environ | {SHARED: str(run), "WANDB_RUN_GROUP": file.stem}
    print(f"\n{run.name}: fit {' '.join(words)}", flush=True)
    process = subprocess.Popen([sys.executable, "-m", __package__, "fit", *words], env=environment)
    before = {number: signal.signal(number, lambda n, _: process.send_signal(n)) for number in SIGNALS}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        print(f"{run} ended with exit code {code}; go on with: fit --repeat 2 --resume {file}", file=sys.stderr)
        sys.exit(code if code > 0 else 128 - code)


def write(file: Path, group: dict[str, Any]) -> None:
    """Replace the group's file in one step."""
    file.parent.mkdir(exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(group, indent=2) + "\n", encoding="utf-8")
    temporary.replace(file)


def summary(results: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return mean, sample standard deviation and the half width of the mean's 95 % confidence interval.

    By Student's t, so it also holds for few runs. Folds share training data: there the interval is too narrow.
    """
    names = [name for name in results[0] if "/" in name and all(name in one for one in results)]
    found = {}
    for name in names:
        values = [one[name] for one in results]
        deviation = statistics.stdev(values)
        t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.96 + 2.5 / (len(values) - 1)
        half = t * deviation / math.sqrt(len(values))
        found[name] = {"mean": statistics.mean(values), "standard_deviation": deviation, "ci95": half, "n": len(values)}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Return `found` as lines of text."""
    lines = [f"{'at the best epoch':<24}{'mean':>10}{'sd':>10}   95 % interval of the mean"]
    for name, s in found.items():
        low, high = s["mean"] - s["ci95"], s["mean"] + s["ci95"]
        lines.append(f"{name:<24}{s['mean']:>10.4f}{s['standard_deviation']:>10.4f}   {low:.4f} to {high:.4f}")
    return "\n".join(lines)
