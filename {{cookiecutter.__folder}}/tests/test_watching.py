"""The overlay that watches a training: shapes, gradient norms and weights of every layer."""

from pathlib import Path

import pytest
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities.model_summary import summarize

from {{ cookiecutter.package }}.practices.loggers import MetricsCsv
from {{ cookiecutter.package }}.training import DEFAULT, TrainingCLI, fit

from conftest import PLAIN, SHORT


class FakeBoard(Logger):
    """Keep what W&B would be sent."""

    name, version = "fake", ""

    def __init__(self):
        super().__init__()
        self.sent = {}
        self.experiment = self

    def log_hyperparams(self, *args, **kwargs): ...

    def log_metrics(self, metrics, step=None): ...

    def log(self, values):
        self.sent |= values


FakeBoard.__name__ = "WandbLogger"


def test_gradient_norms_and_histograms_of_every_layer_reach_the_loggers(build, tmp_path: Path):
    pytest.importorskip("wandb")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    few = ("--data.batch_size=4", "--trainer.limit_val_batches=0", "--trainer.limit_train_batches=4")
    once = ("--trainer.max_epochs=1", "--trainer.accumulate_grad_batches=1")
    cli = build(*few, *once, "--config=configs/watch.yaml", "--trainer.callbacks.every_n_steps=2")
    board = FakeBoard()
    cli.trainer.loggers = [MetricsCsv(tmp_path), TensorBoardLogger(tmp_path, "", "tensorboard"), board]
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    names = [name for name, p in cli.model.named_parameters() if p.requires_grad]
    header, *rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert {f"grad_2.0_norm/{name}" for name in names} <= set(header.split(","))
    assert sum(bool(row.split(",")[header.split(",").index(f"grad_2.0_norm/{names[0]}")]) for row in rows) == 2
    histograms = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()["histograms"]
    assert {f"weights/{name}" for name in names} <= set(histograms) & set(board.sent)


def test_the_summary_shows_the_shapes_in_and_out_of_every_layer(caplog):
    with caplog.at_level("INFO"):
        fit([*SHORT, "--trainer.logger=false", "--trainer.fast_dev_run=1", "--config=configs/watch.yaml"])
    assert "Out sizes" in caplog.text
    cli = TrainingCLI(PLAIN, DEFAULT)
    cli.model.example_input_array = cli.model.example_inputs(cli.datamodule.sample_batch())
    layers = {name for name, layer in cli.model.network.named_modules(prefix="network") if not list(layer.children())}
    sizes = {name: size for name, size in zip(*shapes(cli.model), strict=True) if name in layers}
    assert sizes
    assert "?" not in sizes.values()


def shapes(model) -> tuple[list[str], list]:
    summary = summarize(model, max_depth=-1)
    return list(summary.layer_names), summary.out_sizes
