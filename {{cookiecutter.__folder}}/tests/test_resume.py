"""A run that is killed and resumed ends, to the bit, as the run that never stopped."""

import io
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback

from conftest import PLAIN
from {{ cookiecutter.package }} import training
from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.base_module import BaseModule
from {{ cookiecutter.package }}.practices.resume import EXIT_STOPPED
from {{ cookiecutter.package }}.record import read

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
EMA = '[{"class_path": "lightning.pytorch.callbacks.EMAWeightAveraging", "init_args": {"decay": 0.5} }]'
# Of ModelCheckpoint: where the run lies, and a number that Lightning never reads back.
PATHS = {"dirpath", "best_model_path", "best_k_models", "kth_best_model_path", "current_score"}
VARIANTS = {
    "an epoch may be lost": ["--checkpoint.every_n_train_steps=null"],
    "a step may be lost": [STEPS],
    "two workers": [STEPS, "--data.num_workers=2"],
    "accumulation": [STEPS, "--trainer.accumulate_grad_batches=2", "--trainer.limit_train_batches=5"],
    "average of weights": [STEPS, f"--trainer.callbacks={EMA}"],
    "bfloat16": [STEPS, "--trainer.precision=bf16-mixed"],
    "validation inside an epoch": [STEPS, "--trainer.val_check_interval=2"],
    "counted in steps": [STEPS, "--trainer.max_steps=10", "--trainer.max_epochs=-1"],
    "weighted sampler": [STEPS, "--data.weighted_sampling=true"],
    "early stopping": [STEPS, "--monitor.patience=1", "--trainer.max_epochs=4", "--model.learning_rate=0.0"],
}
# Hook and the call at which the process is killed; with 4 batches an epoch.
FAST_KILLS = [("on_train_batch_end", 6), ("on_validation_batch_end", 3)]
KILLS = [
    ("on_train_epoch_start", 1),
    ("on_train_batch_start", 2),
    ("on_before_zero_grad", 5),
    ("on_train_batch_end", 4),
    ("on_validation_start", 2),
    ("on_validation_end", 2),
    ("on_train_epoch_end", 2),
    ("on_train_batch_end", 7),
    ("on_train_end", 1),
]


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


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, workspace: Path):
    """Run fit in a forked process, which may kill itself, and return (exit code, what it printed)."""
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


@pytest.fixture
def expect(fit) -> Callable[..., None]:
    """Check that a run killed at each of `points` in turn ends as one that was never stopped."""

    def check(arguments: list[str], points: list[tuple[str, int]]) -> None:
        code, text = fit(*arguments)
        assert code == 0, text
        expected = result(latest())
        for point in points:
            assert fit(*arguments, at=point)[0] == -signal.SIGKILL, f"{point} was not reached"
            code, text = fit("--resume=latest")
            assert code == 0, f"{point}: {text}"
            assert not differences(expected, result(latest())), point

    return check


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_killed_run_ends_as_one_that_never_stopped(expect, variant: str):
    expect(VARIANTS[variant], FAST_KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_killed_anywhere_ends_as_one_that_never_stopped(expect, variant: str):
    expect(VARIANTS[variant], KILLS)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_checkpoint_killed_while_it_is_written_leaves_the_one_before(fit, part: float):
    def half_written(monkeypatch: pytest.MonkeyPatch) -> None:
        save, calls = torch.save, []

        def die(content, file) -> None:
            calls.append(1)
            if len(calls) < 3:
                save(content, file)
                return
            buffer = io.BytesIO()
            save(content, buffer)
            file.write(buffer.getvalue()[: int(part * len(buffer.getvalue()))])
            file.flush()
            suicide()

        monkeypatch.setattr(torch, "save", die)

    assert fit(STEPS)[0] == 0
    expected = result(latest())
    assert fit(STEPS, prepare=half_written)[0] == -signal.SIGKILL
    assert torch.load(latest() / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 1
    code, text = fit("--resume=latest")
    assert code == 0, text
    assert not differences(expected, result(latest()))
    assert {path.name for path in (latest() / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}


def test_a_run_killed_again_and_again_has_every_row_once(fit):
    assert fit(STEPS)[0] == 0
    expected = result(latest())
    assert fit(STEPS, at=("on_train_batch_end", 2))[0] == -signal.SIGKILL
    for point in [("on_train_batch_end", 2), ("on_validation_end", 1), ("on_train_batch_end", 3), ("on_train_end", 1)]:
        assert fit("--resume=latest", at=point)[0] == -signal.SIGKILL, point
    assert fit("--resume=latest")[0] == 0
    assert not differences(expected, result(latest()))


def test_a_run_killed_before_its_first_step_starts_again(fit):
    assert fit(STEPS)[0] == 0
    expected = result(latest())
    assert fit(STEPS, at=("on_fit_start", 1))[0] == -signal.SIGKILL
    assert fit("--resume=latest")[0] == 0
    assert not differences(expected, result(latest()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_stops_with_an_exit_code_of_its_own(fit, number: signal.Signals):
    arguments = ["--trainer.accumulate_grad_batches=2"]
    assert fit(*arguments)[0] == 0
    expected = result(latest())
    # In the first of two batches whose gradients are summed up: it must not stop between them.
    code, text = fit(*arguments, at=("on_train_batch_end", 5), action=lambda: os.kill(os.getpid(), number))
    assert code == EXIT_STOPPED == 75, text
    assert f"stopped by {number.name}" in text and read(latest())["status"] == f"stopped by {number.name}"
    assert torch.load(latest() / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 3
    assert fit("--resume=latest")[0] == 0
    assert not differences(expected, result(latest()))


def test_one_seed_gives_one_run_whatever_loads_the_data(fit):
    runs = {}
    for name, more in {
        "first": ["--data.num_workers=0"],
        "again": ["--data.num_workers=0"],
        "two workers": ["--data.num_workers=2"],
        "files": ["--data.num_workers=1", "--data.cache=false"],
    }.items():
        assert fit(*more)[0] == 0
        runs[name] = result(latest())
        # The number of workers is no part of what was learnt.
        assert not differences(runs["first"], runs[name]), name
    assert fit("--seed_everything=43")[0] == 0
    assert differences(runs["first"], result(latest()))


@pytest.fixture
def stopped(fit) -> Path:
    """Return a run that was killed in its second epoch."""
    assert fit(STEPS, at=("on_train_batch_end", 6))[0] == -signal.SIGKILL
    return latest()


@pytest.mark.parametrize(
    "argument,was,now",
    [
        ("--model.learning_rate=0.5", "0.003", "0.5"),
        ("--model.weight_decay=0.5", "0.01", "0.5"),
        ("--data.batch_size=4", "8", "4"),
        ("--seed_everything=7", "42", "7"),
        ("--trainer.accumulate_grad_batches=2", "1", "2"),
        ("--monitor.patience=3", "10", "3"),
        ("--trainer.precision=bf16-mixed", "32-true", "bf16-mixed"),
        ("--model.network=configs/network/resnet18.yaml", "SmallCNN", "TorchvisionNetwork"),
    ],
)
def test_a_value_that_would_not_be_trained_with_is_refused_by_name(fit, stopped: Path, argument, was, now):
    before = (stopped / "config.yaml").read_bytes()
    code, text = fit("--resume=latest", argument)
    assert code == 2
    assert argument.split("=")[0].split(".")[-1].strip("-") in text and was in text and now in text
    assert (stopped / "config.yaml").read_bytes() == before, "refused, but recorded"


def test_what_may_change_takes_effect(fit, stopped: Path):
    code, text = fit("--resume=latest", "--data.num_workers=1", "--trainer.max_epochs=4")
    assert code == 0, text
    last = torch.load(stopped / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 16 and last["lr_schedulers"][0]["_last_lr"][0] < 1e-4, "the curve ends at the new end"
    assert read(stopped)["resumes"][0]["changed"]["trainer.max_epochs"] == [3, 4]


def test_a_schedule_that_stores_its_length_refuses_another(fit):
    def one_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
        def configure(module) -> dict:
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            total_steps = module.trainer.estimated_stepping_batches
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        monkeypatch.setattr(BaseModule, "configure_optimizers", configure)

    assert fit(STEPS, at=("on_train_batch_end", 6), prepare=one_cycle)[0] == -signal.SIGKILL
    code, text = fit("--resume=latest", "--trainer.max_epochs=4", prepare=one_cycle)
    assert code == 2 and "total_steps=12" in text
    code, text = fit("--resume=latest", prepare=one_cycle)
    assert code == 0, text


def test_nothing_to_resume_is_said(fit, stopped: Path, monkeypatch: pytest.MonkeyPatch):
    assert fit("--resume=latest")[0] == 0
    code, text = fit("--resume=latest")
    assert code == 2 and "has finished" in text
    code, text = fit("--resume=latest", "--trainer.max_epochs=2")
    assert code == 2 and "already trained 3 epochs" in text
    code, text = fit("--resume=runs/other")
    assert code == 2 and "runs/other is no run" in text


def test_a_run_is_not_resumed_on_other_data(fit, stopped: Path):
    shutil.copytree("data/digits", "other")
    image = next(Path("other").rglob("*.png"))
    image.with_name("one-more.png").write_bytes(image.read_bytes())
    code, text = fit("--resume=latest", "--data.root=other")
    assert code == 2 and "was trained on other data" in text
    image.with_name("one-more.png").unlink()
    assert fit("--resume=latest", "--data.root=other")[0] == 0


def test_a_resumed_run_keeps_its_wandb_run_unless_told_otherwise(workspace: Path):
    pytest.importorskip("wandb")
    logger = {
        "class_path": "lightning.pytorch.loggers.WandbLogger",
        "init_args": {"offline": True},
    }
    run = Path("runs/some")

    def place_id(base: Path, *more: str) -> str:
        arguments = [*PLAIN, f"--trainer.logger={json.dumps(logger)}", *more]
        return training.TrainingCLI(arguments, base, lambda: run).config.trainer.logger.init_args.id

    assert place_id(training.DEFAULT) == "some"
    assert place_id(training.DEFAULT, "--trainer.logger.init_args.id=another") == "some", "a copied configuration"
    assert place_id(training.DEFAULT, "--trainer.logger.init_args.id=some-2") == "some-2", "a resumed run's own"
