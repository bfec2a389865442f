"""What a resumed run may change is changed; everything else is refused by name."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch

from {{ cookiecutter.package }} import training
from {{ cookiecutter.package }}.practices.base_module import BaseModule
from {{ cookiecutter.package }}.record import read

from conftest import PLAIN, PROJECT
from conftest_kill import STEPS, forked_fit, latest

CONFIG = (PROJECT / "configs" / "default.yaml").read_text(encoding="utf-8")
NETWORKS = sorted(str(path.relative_to(PROJECT)) for path in PROJECT.glob("configs/network/*.yaml"))


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, workspace: Path):
    return forked_fit(monkeypatch, workspace)


@pytest.fixture
def stopped(fit) -> Path:
    """Return a run that was killed in its second epoch."""
    assert fit(STEPS, at=("on_train_batch_end", 6))[0] == -signal.SIGKILL
    return latest()


@pytest.mark.parametrize(
    "argument,was,now",
    [
        ("--model.learning_rate=0.5", "", "0.5"),
        ("--model.weight_decay=0.5", "", "0.5"),
        ("--data.batch_size=4", "8", "4"),
        ("--seed_everything=7", "42", "7"),
        ("--trainer.accumulate_grad_batches=2", "1", "2"),
        ("--monitor.patience=3", "10", "3"),
        ("--trainer.precision=bf16-mixed", "32-true", "bf16-mixed"),
        (f"--model.network={NETWORKS[-1]}", "", "another run"),
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


@pytest.mark.skipif("root: data/digits" not in CONFIG, reason="copies a folder of images")
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
