"""A run that is killed and resumed ends, to the bit, as the run that never stopped."""

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from {{ cookiecutter.package }}.record import read
from {{ cookiecutter.package }}.resume import EXIT_STOPPED

from conftest import PROJECT
from conftest_kill import STEPS, differences, forked_fit, latest, result, suicide

CONFIG = (PROJECT / "configs" / "default.yaml").read_text(encoding="utf-8")
EMA = '[{"class_path": "lightning.pytorch.callbacks.EMAWeightAveraging", "init_args": {"decay": 0.5} }]'
VARIANTS = {
    "an epoch may be lost": ["--checkpoint.every_n_train_steps=null"],
    "a step may be lost": [STEPS],
    "two workers": [STEPS, "--data.num_workers=2"],
    "accumulation": [STEPS, "--trainer.accumulate_grad_batches=2", "--trainer.limit_train_batches=5"],
    "average of weights": [STEPS, f"--trainer.callbacks={EMA}"],
    "bfloat16": [STEPS, "--trainer.precision=bf16-mixed"],
    "validation inside an epoch": [STEPS, "--trainer.val_check_interval=2"],
    "counted in steps": [STEPS, "--trainer.max_steps=10", "--trainer.max_epochs=-1"],
    "early stopping": [STEPS, "--monitor.patience=1", "--trainer.max_epochs=4", "--model.learning_rate=0.0"],
}
if " weighted_sampling: " in CONFIG:
    VARIANTS["weighted sampler"] = [STEPS, "--data.weighted_sampling=true"]
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


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, workspace: Path):
    return forked_fit(monkeypatch, workspace)


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
    loading = {
        "first": ["--data.num_workers=0"],
        "again": ["--data.num_workers=0"],
        "one worker, files": ["--data.num_workers=1", *(["--data.cache=false"] if " cache: " in CONFIG else [])],
        "two workers": ["--data.num_workers=2"],
        "four workers": ["--data.num_workers=4"],
    }
    for name, more in loading.items():
        assert fit(*more)[0] == 0
        runs[name] = result(latest())
        # The number of workers is no part of what was learnt.
        assert not differences(runs["first"], runs[name]), name
    assert fit("--seed_everything=43")[0] == 0
    assert differences(runs["first"], result(latest()))
