"""Running fit in a process that may kill itself, and comparing what runs leave."""

import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback

from {{ cookiecutter.package }} import training
from {{ cookiecutter.package }}.cli import main

from conftest import PLAIN

SMALL = (
    *PLAIN,
    "--trainer.max_epochs=3",
    "--trainer.limit_train_batches=4",
    "--trainer.limit_val_batches=2",
    "--trainer.log_every_n_steps=1",
    "--trainer.logger=false",
    "--trainer.enable_progress_bar=false",
    "--trainer.enable_model_summary=false",
    "--data.batch_size=8",
    "--export_onnx=false",
)
STEPS = "--checkpoint.every_n_train_steps=1"
# Of ModelCheckpoint: where the run lies, and a number that Lightning never reads back.
PATHS = {"dirpath", "best_model_path", "best_k_models", "kth_best_model_path", "current_score"}


class At(Callback):
    """Do something at the n-th call of a hook."""

    def __init__(self, hook: str, count: int, action: Callable[[], None]) -> None:
        self.count, self.action = count, action
        setattr(self, hook, self._called)

    def _called(self, trainer, *args) -> None:
        self.count -= not trainer.sanity_checking
        if self.count == 0:
            self.action()


class Noise(Callback):
    """Draw from every generator and log a number whose mean is the epoch's."""

    def on_train_batch_end(self, trainer, pl_module, *args) -> None:
        number = torch.rand(()) + random.random() + np.random.rand()
        pl_module.log("train/noise", number, on_step=True, on_epoch=True, batch_size=1)
        pl_module.log("train/most_noise", number, on_step=False, on_epoch=True, reduce_fx="max", batch_size=1)


def suicide() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forked_fit(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Callable[..., tuple[int, str]]:
    """Return a function that runs fit in a forked process and returns (exit code, what it printed)."""
    standard = training.standard_callbacks

    def run(*arguments: str, at: tuple[str, int] | None = None, action=suicide, prepare=None) -> tuple[int, str]:
        output = workspace / "output.txt"
        pid = os.fork()
        if pid == 0:
            try:
                sys.stdout = sys.stderr = output.open("w", buffering=1, encoding="utf-8")
                more = [Noise(), *([At(*at, action)] if at else [])]
                monkeypatch.setattr(training, "standard_callbacks", lambda *a: [*standard(*a), *more])
                if prepare:
                    prepare(monkeypatch)
                main(["fit", *([] if arguments[0].startswith("--resume") else SMALL), *arguments])
                os._exit(0)
            except SystemExit as end:
                print(end.code if isinstance(end.code, str) else "", flush=True)
                os._exit(end.code if isinstance(end.code, int) else 1)
            except BaseException:
                traceback.print_exc()
                os._exit(99)
        status = os.waitpid(pid, 0)[1]
        return os.waitstatus_to_exitcode(status), output.read_text(encoding="utf-8")

    return run


def result(run: Path) -> dict:
    """Return all that must be equal: both checkpoints and the rows of metrics.csv."""
    load = {name: torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True) for name in ("last", "best")}
    return {**load, "rows": (run / "metrics.csv").read_text(encoding="utf-8")}


def differences(a, b, path: str = "") -> list[str]:
    """Return where two nested results differ, to the bit; the folders of two runs may."""
    if isinstance(a, dict) and isinstance(b, dict):
        names = a.keys() | b.keys()
        return [d for n in names - PATHS for d in differences(a.get(n), b.get(n), f"{path}/{n}")]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        return [d for i, pair in enumerate(zip(a, b, strict=True)) for d in differences(*pair, f"{path}/{i}")]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return [] if torch.equal(a.nan_to_num(7), b.nan_to_num(7)) and a.dtype == b.dtype else [path]
    same = a == b or (a != a and b != b)
    return [] if same else [f"{path}: {a} and {b}"]


def latest() -> Path:
    return Path("runs") / Path("runs/latest").readlink()
