"""What exact resume costs: training with and without it, side by side in one process, and writing a checkpoint.

    python bench/resume_cost.py --pairs 9

Without: Lightning's own last.ckpt each epoch, samples not seeded one by one, its way of writing files.
Both train the same batches of the same network; the ratio is of medians, above 1 where exactness is faster.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cookiecutter.main import cookiecutter

TEMPLATE = Path(__file__).parents[1]
PLAIN = "--trainer.accelerator=cpu --trainer.devices=1 --trainer.enable_progress_bar=false --trainer.logger=false"
QUIET = "--trainer.enable_model_summary=false --trainer.limit_val_batches=0 --monitor.metric=train/loss"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        answers = {"project": "measured", "package": "measured", "logger": "csv"}
        project = Path(cookiecutter(str(TEMPLATE), no_input=True, output_dir=name, extra_context=answers))
        os.chdir(project)
        sys.path.insert(0, str(project / "src"))
        import torch

        torch.set_num_threads(1)
        measure_training(options.pairs, options.epochs, options.workers)
        measure_writing("CNN")
        measure_writing("ViT", "--model.network=configs/network/vit.yaml")


def build(*more: str) -> Any:
    """Return data, module and trainer of the rendered project, with a new run folder."""
    from measured import runs, training

    return training.TrainingCLI([*PLAIN.split(), *QUIET.split(), *more], training.DEFAULT, runs.new_run)


def seconds(exact: bool, epochs: int, workers: int) -> float:
    """Return how long an epoch takes, its checkpoints included."""
    from lightning.pytorch import Callback
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.io import TorchCheckpointIO
    from measured import training
    from measured.practices import loaders
    from measured.resume import ExactResume

    class Unseeded(loaders.SeededDataset):
        def __getitem__(self, key: Any) -> Any:
            return self.data[key[1]]

    class Clock(Callback):
        def on_train_start(self, *args: Any) -> None:
            self.start = time.perf_counter()

        def on_train_end(self, *args: Any) -> None:
            self.seconds = time.perf_counter() - self.start

    def inexact(monitor: Any, checkpoint: Any, run: Path) -> list[Any]:
        others = [one for one in standard(monitor, checkpoint, run) if not isinstance(one, ExactResume)]
        return [*others, ModelCheckpoint(run / "checkpoints", "last", save_on_train_epoch_end=True)]

    standard, seeded, atomic = training.standard_callbacks, loaders.SeededDataset, training.AtomicCheckpointIO
    if not exact:
        training.standard_callbacks, loaders.SeededDataset = inexact, Unseeded
        training.AtomicCheckpointIO = TorchCheckpointIO
    try:
        cli = build(f"--trainer.max_epochs={epochs}", f"--data.num_workers={workers}")
        clock = Clock()
        cli.trainer.callbacks.append(clock)
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    finally:
        training.standard_callbacks, loaders.SeededDataset = standard, seeded
        training.AtomicCheckpointIO = atomic
    return clock.seconds / epochs


def measure_training(pairs: int, epochs: int, workers: int) -> None:
    """Print the throughput with and without, medians of runs in turn."""
    for exact in (True, False):
        seconds(exact, 1, workers)  # writes the data, warms up
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs):
        for exact in (True, False) if number % 2 else (False, True):
            found[exact].append(seconds(exact, epochs, workers))
    with_it, without = statistics.median(found[True]), statistics.median(found[False])
    print(f"an epoch: {with_it:.3f} s with exactness, {without:.3f} s without, medians of {pairs} runs in turn")
    print(f"throughput with / without: {without / with_it:.3f}")


def measure_writing(name: str, *more: str) -> None:
    """Print how long last.ckpt of a network takes to write and flush to the disk, against Lightning's own way."""
    import torch
    from lightning.pytorch.plugins.io import TorchCheckpointIO

    cli = build("--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--data.batch_size=4", *more)
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    path = cli.run / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    times = {}
    for kind in (type(cli.trainer.strategy.checkpoint_io), TorchCheckpointIO):
        times[kind] = []
        for _ in range(7):
            start = time.perf_counter()
            kind().save_checkpoint(content, path)
            times[kind].append(time.perf_counter() - start)
    ours, theirs = (1000 * statistics.median(one) for one in times.values())
    size = path.stat().st_size / 1e6
    print(f"last.ckpt of the {name}: {size:.1f} MB, {ours:.0f} ms flushed and renamed; {theirs:.0f} ms by Lightning")


if __name__ == "__main__":
    main()
