"""The record of a run, runs/<run>/record.json: with what it was trained, on what, how far, and how it ended.

Written when the run starts and after every epoch, so that a killed run has one too; why it was killed
is added by the resume that follows.
"""

import csv
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from .practices.errors import UserError
from .practices.loaders import BaseDataModule, Split
from .resume import Stopped
from .runs import unused

SPLITS: tuple[Split, ...] = ("train", "val", "test")


class RunRecord(Callback):
    """Keep record.json of `run` up to date; `facts` are what is known before the first step."""

    def __init__(self, run: Path, facts: dict[str, Any], resume: dict[str, Any] | None) -> None:
        """Start a record, or with `resume` (changed values, the step it goes on from) continue the one there is."""
        self.path = run / "record.json"
        self.content = read(run) if resume is not None else {}
        before = {key: self.content.get(key) for key in ("status", "versions", "git")}
        self.content = {"run": run.name, "started": now(), "resumes": [], **self.content, **facts, "status": "running"}
        self.earlier_seconds = self.content.get("wall_seconds", 0.0)
        self.seconds = dict(self.content.get("seconds", {}))
        self.begin = self.train_begin = self.mark = time.monotonic()
        if resume is not None:
            reason = {"running": "killed, as no end was recorded", None: "no record"}.get(before["status"])
            self.content["command"] = read(run).get("command")  # the first one; a resume has its own
            entry = {"time": now(), "reason": reason or before["status"], "command": facts["command"], **resume}
            entry["before"] = before
            self.content["resumes"] = [*self.content["resumes"], entry]
        self.write()

    @rank_zero_only
    def write(self) -> None:
        """Replace record.json in one step."""
        self.content["wall_seconds"] = round(self.earlier_seconds + time.monotonic() - self.begin, 1)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.content, indent=2, ensure_ascii=False) + "\n", "utf-8", errors="replace")
        temporary.replace(self.path)

    def _spent(self, kind: str) -> None:
        """Count the time since the last call as spent on `kind`."""
        before, self.mark = self.mark, time.monotonic()
        self.seconds[kind] = self.seconds.get(kind, 0.0) + self.mark - before

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to measure the speed; record what the machine decided."""
        self._spent("start")
        self.train_begin, self.batches = self.mark, trainer.fit_loop.total_batch_idx
        workers = trainer.datamodule.num_workers  # type: ignore[attr-defined]
        self.content |= {"device": str(trainer.strategy.root_device), "devices": trainer.world_size, "workers": workers}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count what came before: checkpoints, loggers."""
        self._spent("other")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Count how long the step waited for its batch."""
        self._spent("data")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step: forward, backward, optimizer."""
        self._spent("training")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count what came before."""
        self._spent("start" if trainer.sanity_checking else "other")

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the validation, its data included."""
        self._spent("start" if trainer.sanity_checking else "validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count the loggers and the writing of best.ckpt."""
        self._spent("start" if trainer.sanity_checking else "other")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write how far the run is."""
        self._spent("other")
        batches = trainer.fit_loop.total_batch_idx - self.batches
        samples = batches * trainer.datamodule.batch_size * trainer.world_size  # type: ignore[attr-defined]
        seconds = self.mark - self.train_begin
        self.content |= {"epochs": trainer.current_epoch + 1, "steps": trainer.global_step}
        self.content["seconds"] = {kind: round(spent, 2) for kind, spent in self.seconds.items()}
        self.content["samples_per_second"] = round(samples / seconds, 1)  # validation's time included
        self.write()

    @contextmanager
    def watching(self, monitor: str, mode: str) -> Iterator[None]:
        """Record how what is done inside ends, and the metrics at the best epoch."""
        status = "finished"
        try:
            yield
        except Stopped as stop:
            status = str(stop)
            raise
        except (KeyboardInterrupt, SystemExit):
            status = "interrupted"
            raise
        except BaseException as error:
            status = f"failed: {type(error).__name__}: {error}"[:500]
            raise
        finally:
            self.content |= {"status": status, "ended": now(), "best": best(self.path.parent, monitor, mode)}
            self.write()


def now() -> str:
    """Return the time here, with its offset from UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def read(run: Path) -> dict[str, Any]:
    """Return the record of `run`; empty where it has none."""
    path = run / "record.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); remove the run, or restore the file.") from error
    return content


def best(run: Path, monitor: str, mode: str) -> dict[str, float]:
    """Return the row of metrics.csv with the best value of `monitor`, its empty columns left out."""
    path = run / "metrics.csv"
    rows = list(csv.DictReader(path.open(newline="", encoding="utf-8"))) if path.is_file() else []
    measured = [row for row in rows if row.get(monitor) and row[monitor] != "nan"]
    if not measured:
        return {}
    row = (min if mode == "min" else max)(measured, key=lambda one: float(one[monitor]))
    return {name: float(value) for name, value in row.items() if value}


def tested(run: Path) -> dict[str, float]:
    """Return what the test command measured of `run`; empty where that was another checkpoint than the best one now."""
    file, checkpoint = run / "test_metrics.json", run / "checkpoints/best.ckpt"
    if not file.is_file() or (checkpoint.is_file() and file.stat().st_mtime < checkpoint.stat().st_mtime):
        return {}
    found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return found


def metrics_file(run: Path, data: BaseDataModule, trainer: Any, verb: str) -> Path:
    """Return where what `verb` measures goes: a file apart if the data, or how much of it, is not the record's."""
    file, record = run / f"{verb}_metrics.json", read(run)
    if not record:
        return file
    part = f"limit_{'val' if verb == 'validate' else verb}_batches"
    same = all(trainer[name] == record["config"]["trainer"].get(name) for name in (part, "fast_dev_run"))
    known = json.loads(json.dumps(fingerprint(data)))  # as the record was written
    return file if same and known == record["data"] else unused(file.with_stem(f"{file.stem}-other"))


def fingerprint(data: BaseDataModule) -> dict[str, Any]:
    """Return what tells one data set from another: samples by split, classes, and a hash of all names and sizes."""
    digest, counts = hashlib.sha256(), {}
    root = str(getattr(data, "root", ""))
    for split in SPLITS:
        try:
            names = data.sample_ids(split)
        except UserError:  # no test split
            continue
        counts[split] = len(names)
        for name in names:
            size = Path(name).stat().st_size if os.path.lexists(name) else 0
            digest.update(f"{split}:{name.removeprefix(root)}:{size}\n".encode())
    known = {name: getattr(data, name) for name in data.provides if name not in data.fitted}
    return {"samples": counts, **known, "sha256": digest.hexdigest()[:16]}


@rank_zero_only
def save_changes(run: Path) -> None:
    """Write what differs from the git commit beside the record."""
    if changes := git("diff", "HEAD"):
        (run / "uncommitted.diff").write_text(changes + "\n", encoding="utf-8", errors="surrogateescape")


def surroundings() -> dict[str, Any]:
    """Return what a run depends on besides its configuration and data."""
    packages = {one.name: one.version for one in metadata.distributions()}
    state = Path(".cruft.json")
    template = json.loads(state.read_text(encoding="utf-8")) if state.is_file() else {}
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "command": " ".join([f"python -m {__package__}", *sys.argv[1:]]),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "lightning": packages.get("lightning"),
            "cuda": torch.version.cuda,
        },
        "git": {"commit": git("rev-parse", "HEAD"), "changed": (git("status", "--porcelain") or "").splitlines()},
        "template": {name: template.get(name) for name in ("template", "commit", "tag")},
        "hardware": {"machine": platform.platform(), "cpus": os.cpu_count(), "gpus": gpus},
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def git(*arguments: str) -> str | None:
    """Return what a reading git command prints about this project; None outside a repository."""
    try:
        # Files may be of any encoding: what is no UTF-8 comes and goes as it is.
        how: Any = {"capture_output": True, "encoding": "utf-8", "errors": "surrogateescape", "timeout": 60}
        result = subprocess.run(["git", *arguments], check=False, **how)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.rstrip() if result.returncode == 0 else None
