"""Learning rates at the start, the peak and the end, and what each schedule needs of the run."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.practices.schedules import make_schedule

PEAK = 0.01
QUICK = ("--data.batch_size=4", "--trainer.limit_val_batches=1", "--trainer.num_sanity_val_steps=0")


class Rates(Callback):
    """Note the learning rate of every step, and after the last."""

    def __init__(self):
        self.rates = []

    def on_train_batch_start(self, trainer, *_):
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_end(self, trainer, *_):
        self.on_train_batch_start(trainer)


@pytest.fixture
def train(build):
    def run(schedule: str, epochs: int, *arguments: str, start: Path | None = None):
        options = [f"--model.schedule={schedule}", f"--model.learning_rate={PEAK}", f"--trainer.max_epochs={epochs}"]
        cli = build(*options, *QUICK, "--trainer.limit_train_batches=5", *arguments)
        cli.trainer.callbacks.append(rates := Rates())
        cli.trainer.fit(cli.model, datamodule=cli.datamodule, ckpt_path=start, weights_only=True)
        return cli.trainer, rates.rates

    return run


def test_warmup_cosine_rises_to_the_peak_and_ends_at_zero(train):
    _, rates = train("warmup_cosine", 2, "--model.warmup_share=0.4")
    assert rates[:5] == pytest.approx([PEAK * share for share in (0.2, 0.4, 0.6, 0.8, 1.0)])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)


def test_one_cycle_rises_from_a_small_rate_and_ends_at_almost_none(train):
    _, rates = train("one_cycle", 2, "--model.warmup_share=0.4")
    assert rates[0] == pytest.approx(PEAK / 25)
    assert rates[3] == max(rates) == pytest.approx(PEAK)
    assert rates[9] == pytest.approx(PEAK / 250_000)


def test_constant_stays(train):
    assert train("constant", 2)[1] == pytest.approx([PEAK] * 11)


def test_plateau_divides_by_ten_when_nothing_gets_better():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    checkpoint = ModelCheckpoint(monitor="val/accuracy", mode="max")
    own = ModelCheckpoint(monitor="val/loss")  # the configuration's, which come first
    trainer = SimpleNamespace(checkpoint_callbacks=[own, checkpoint], enable_validation=True, check_val_every_n_epoch=2)
    config = make_schedule("plateau", optimizer, 0.0, trainer)
    assert (config["monitor"], config["frequency"]) == ("val/accuracy", 2)
    rates = []
    for metric in (0.5, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7):
        config["scheduler"].step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([PEAK] * 6 + [PEAK / 10] * 2)


@pytest.mark.parametrize(
    ("argument", "looks", "metric"),
    [
        ("--trainer.check_val_every_n_epoch=2", 1, "val/loss"),
        ("--trainer.limit_val_batches=0", 3, "train/loss"),
    ],
)
def test_plateau_looks_when_there_is_something_to_see(train, argument: str, looks: int, metric: str):
    trainer, _ = train("plateau", 3, argument)
    (config,) = trainer.lr_scheduler_configs
    assert config.monitor == metric
    assert config.scheduler.last_epoch == looks


@pytest.mark.parametrize("schedule", ["warmup_cosine", "one_cycle"])
def test_a_run_resumed_with_more_epochs_follows_the_longer_curve(train, tmp_path: Path, schedule: str):
    first, _ = train(schedule, 1)
    first.save_checkpoint(tmp_path / "last.ckpt")
    _, rates = train(schedule, 3, start=tmp_path / "last.ckpt")
    _, whole = train(schedule, 3)
    assert rates[1:] == pytest.approx(whole[6:])


def test_a_schedule_of_a_run_without_end_is_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    with pytest.raises(UserError, match=r"needs an end: set trainer.max_epochs"):
        make_schedule("one_cycle", optimizer, 0.1, SimpleNamespace(estimated_stepping_batches=float("inf")))
