"""What the learning curves say: a pure function of the rows of metrics.csv, in which no level counts, only the course.

Train and val are not compared with each other: dropout, augmentation and label smoothing raise the training loss alone.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Row = Mapping[str, str]
LOWER = "divide model.learning_rate by three to ten, or give it a longer warm-up"


class Verdict(NamedTuple):
    """What was found (too short, rate too high, overfitting, underfitting, fine); what speaks for it, what to do."""

    kind: str
    sentence: str


def read(run: Path) -> list[dict[str, str]]:
    """Return the rows of metrics.csv of `run`; none where it has no such file."""
    path = run / "metrics.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []


def curve(rows: Iterable[Row], name: str, by: str = "epoch") -> dict[int, float]:
    """Return the last value of metric `name` at each epoch, or at each step with `by`."""
    return {int(float(row[by])): float(row[name]) for row in rows if row.get(by) and row.get(name)}


def judge(rows: Sequence[Row]) -> Verdict:
    """Return what train/loss and val/loss say of the training, both by epoch."""
    steps = [(int(float(r["epoch"])), float(r["train/loss_step"])) for r in rows if r.get("train/loss_step")]
    both = curve(rows, "train/loss"), curve(rows, "val/loss")
    if not all(map(math.isfinite, [*(loss for _, loss in steps), *both[0].values(), *both[1].values()])):
        return Verdict("rate too high", f"The loss became infinite or no number; {LOWER}.")
    epochs = sorted(both[0].keys() & both[1].keys())
    if len(epochs) < 3:
        return Verdict("too short", f"{len(epochs)} epochs have train/loss and val/loss; three or more show a course.")
    train, val = ([values[epoch] for epoch in epochs] for values in both)
    # An epoch's mean may already be low: where it came from is known by a step of the first epoch, if one was logged.
    first = next((loss for epoch, loss in steps[:1] if epoch == epochs[0]), train[0])
    if max(val) > 10 * abs(first):
        return Verdict("rate too high", f"val/loss reached {max(val):.3g}, of {first:.3g} at the first step; {LOWER}.")
    start = max(train[0], first)
    found = _jumps(train, first, epochs) or _overfits(train, val, epochs) or _learns_on(train, val, start)
    return found or Verdict("fine", f"Both losses levelled off; val/loss ended at {val[-1]:.3g}, best {min(val):.3g}.")


def _jumps(train: list[float], first: float, epochs: list[int]) -> Verdict | None:
    """Return a verdict if an epoch lost half of what was gained before it, and a tenth of the loss."""
    start = max(first, train[0])
    for i, loss in enumerate(train):
        best = min(train[:i], default=first)
        # The first step's is the loss of one batch, so that only a multiple of it means something.
        if loss - best > (max(0.5 * (start - best), 0.1 * abs(start)) if i else 2 * abs(first)):
            seen = f"train/loss jumped from {best:.3g} to {loss:.3g} in epoch {epochs[i]}"
            return Verdict("rate too high", f"{seen}; {LOWER}.")
    return None


def _overfits(train: list[float], val: list[float], epochs: list[int]) -> Verdict | None:
    """Return a verdict if validation rose again after its best epoch while training fell on."""
    best = val.index(min(val))
    end = sum(val[-2:]) / 2
    needed = 0.05 * max(abs(val[best]), val[0] - val[best])
    if best > len(val) - 3 or train[-1] >= train[best] or end - val[best] <= needed:
        return None
    seen = f"val/loss rose from {val[best]:.3g} in epoch {epochs[best]} to {end:.3g} while train/loss fell on"
    return Verdict("overfitting", f"{seen}; try more data, weight decay or dropout, or a smaller network.")


def _learns_on(train: list[float], val: list[float], start: float) -> Verdict | None:
    """Return a verdict if both curves have hardly fallen at all, or were still falling at the end."""
    if start - min(train) < 0.1 * abs(start) and val[0] - min(val) < 0.1 * abs(val[0]):
        seen = f"train/loss has hardly fallen, from {start:.3g} to {min(train):.3g}"
        return Verdict("underfitting", f"{seen}; try another learning rate, a larger network, and look at the labels.")
    last = max(1, len(val) // 4)
    fall = min((x[-1 - last] - x[-1]) / (x[0] - min(x) or math.inf) for x in (train, val))
    seen = f"The last {last} of {len(val)} epochs still brought {fall:.0%} of the whole fall"
    return Verdict("underfitting", f"{seen}; train longer, or with a larger network.") if fall > 0.1 else None
