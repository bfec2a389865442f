"""Training throughput of the default configuration, beside a bare loop and beside plain Lightning.

All three train the same network on the same cached images with the same augmentation, on the CPU in
one process, for the same steps; each line gives samples per second and its ratio to the bare loop.
Then the three largest costs over the bare loop, each found by turning it off alone.
"""

import importlib
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from common import medians, rendered
from lightning.pytorch import LightningModule, Trainer
from torch.nn import functional as F
from torch.utils.data import DataLoader

STEPS, ROUNDS = 60, 5
PLAIN = ["--trainer.accelerator=cpu", "--data.num_workers=0", "--trainer.logger=false", "--monitor.patience=null"]
LENGTH = [f"--trainer.limit_train_batches={STEPS // 3}", "--trainer.max_epochs=3", "--trainer.limit_val_batches=0"]
QUIET = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]


def build(*more: str) -> Any:
    """Return the project's own data, module and trainer."""
    training = importlib.import_module("digit_reader.training")
    run = Path(tempfile.mkdtemp())
    return training.TrainingCLI([*PLAIN, *LENGTH, *QUIET, *more], training.DEFAULT, lambda: run)


def project(*more: str) -> float:
    """Return samples per second of the default configuration."""
    cli = build(*more)
    cli.datamodule.dataset("train")
    started = time.perf_counter()
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    return STEPS * cli.datamodule.batch_size / (time.perf_counter() - started)


def bare(seeded: bool = False) -> float:
    """Return samples per second of a loop that anybody would write."""
    cli = build()
    data, network = cli.datamodule.dataset("train"), cli.model.network
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, fused=True)
    loader = cli.datamodule.loader("train") if seeded else DataLoader(data, 64, shuffle=True)
    started, done = time.perf_counter(), 0
    while done < STEPS:
        for batch in loader:
            loss = F.cross_entropy(network(cli.model.normalize(batch["image"])), batch["label"], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done in (STEPS // 3, 2 * STEPS // 3, STEPS):
                break
    return STEPS * 64 / (time.perf_counter() - started)


class PlainModule(LightningModule):
    """What Lightning's first page shows."""

    def __init__(self, network: torch.nn.Module, normalize: Any) -> None:
        super().__init__()
        self.network, self.normalize = network, normalize

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        """Return the loss."""
        loss = F.cross_entropy(self.network(self.normalize(batch["image"])), batch["label"], label_smoothing=0.1)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW as it comes."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def plain() -> float:
    """Return samples per second of plain Lightning with its defaults."""
    cli = build()
    loader = DataLoader(cli.datamodule.dataset("train"), 64, shuffle=True)
    trainer = Trainer(
        accelerator="cpu", max_epochs=3, limit_train_batches=STEPS // 3, default_root_dir=tempfile.mkdtemp(),
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    started = time.perf_counter()
    trainer.fit(PlainModule(cli.model.network, cli.model.normalize), loader)
    return STEPS * 64 / (time.perf_counter() - started)


def without_metrics() -> float:
    """Return samples per second of the project when the training metrics are not updated."""
    module = importlib.import_module("torchmetrics").MetricCollection
    update, module.update = module.update, lambda *_: None
    try:
        return project()
    finally:
        module.update = update


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with rendered(logger="csv") as folder:
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        build().datamodule.prepare_data()
        candidates = {
            "bare loop": bare,
            "default configuration": project,
            "plain Lightning": plain,
            "bare loop, seeding each sample": lambda: bare(seeded=True),
            "default, no training metrics": without_metrics,
            "default, no clipping": lambda: project("--trainer.gradient_clip_val=null"),
            "default, logging every 1000 steps": lambda: project("--trainer.log_every_n_steps=1000"),
        }
        rates = medians(candidates, ROUNDS)
        for name, rate in rates.items():
            print(f"{name:<36}{rate:8.0f} samples/s  {rate / rates['bare loop']:.2f}")
