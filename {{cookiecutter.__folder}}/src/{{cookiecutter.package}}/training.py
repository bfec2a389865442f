"""The commands that run the trainer: fit, validate, test, predict, export.

Everything is configured by jsonargparse through LightningCLI: configs/default.yaml first, then each
`--config` overlay in order, then single flags, wherever they stand. For an existing run its own
config.yaml takes the place of the default.
"""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.utilities import rank_zero_only

from .callbacks import Checkpoint, Monitor, standard_callbacks
from .changes import check_resume
from .cli import after
from .mistakes import require_yaml
from .practices.base_module import BaseModule
from .practices.errors import UserError
from .practices.export import export_onnx
from .practices.hardware import choose_precision, share_cpus, uses_gpu
from .practices.loaders import BaseDataModule
from .practices.loggers import MetricsCsv, closing_loggers, place
from .progress import compare_target, make_progress, quieten, say_next
from .record import RunRecord, fingerprint, metrics_file, save_changes, surroundings
from .repeat import repeat
from .resume import EXIT_STOPPED, AtomicCheckpointIO, Stopped
from .runs import find_checkpoint, find_run, new_run, point_latest_at, shared_with_children, unused

# Of a project with two tasks the variable names whose configuration is read first, in its tests too.
DEFAULT = Path(os.environ.get("DEFAULT_CONFIG", "configs/default.yaml"))


class TrainingCLI(LightningCLI):
    """Build data module, module and trainer from the configuration; running them is the commands' part."""

    model: BaseModule
    datamodule: BaseDataModule

    def __init__(self, arguments: Sequence[str], base: Path, open_run: Callable[[], Path] | None = None) -> None:
        """Read `base`, then `arguments`. With `open_run`, log and write checkpoints into the folder it gives."""
        if not base.is_file():
            raise UserError(f"{base} does not exist here; start the command in the project's folder.")
        require_yaml(base)
        self.open_run = open_run
        self.run: Path | None = None
        super().__init__(
            LightningModule,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            run=False,
            args=list(arguments),
            save_config_callback=None,  # fit writes config.yaml itself, before the first step
            auto_configure_optimizers=False,
            seed_everything_default=42,
            parser_kwargs={"default_config_files": [str(base)], "exit_on_error": False, "allow_abbrev": False},
        )

    def add_arguments_to_parser(self, parser: ArgumentParser) -> None:
        """Add what every run has beside trainer, model and data."""
        parser.add_class_arguments(Monitor, "monitor")
        parser.add_class_arguments(Checkpoint, "checkpoint")
        parser.add_argument("--export_onnx", type=bool, default=True, help="Export the best checkpoint after fit.")

    def before_instantiate_classes(self) -> None:
        """Decide what was left open, so that config.yaml tells what really ran."""
        trainer, model = self.config.trainer, self.config.model
        share_cpus(trainer.accelerator)
        if trainer.precision is None:
            trainer.precision = choose_precision(trainer.accelerator)
        if trainer.sync_batchnorm and not uses_gpu(trainer.accelerator):
            trainer.sync_batchnorm = False  # Lightning has it for GPUs only and fails elsewhere
        data = self._data()
        for name in data.provides:
            if name in model.init_args and model.init_args[name] is None:
                model.init_args[name] = getattr(data, name)
        if self.open_run and not trainer.fast_dev_run:
            self.run = run = self.open_run()
            trainer.default_root_dir = str(run)
            for logger in _as_list(trainer.logger):
                place(logger, run)

    def _data(self) -> BaseDataModule:
        """Return a data module for asking what the module needs to know."""
        parser = ArgumentParser(exit_on_error=False)
        parser.add_subclass_arguments(LightningDataModule, "data")
        config = parser.parse_object({"data": self.config.data.as_dict()})
        data: BaseDataModule = parser.instantiate(config).data
        return data

    def instantiate_classes(self) -> None:
        """Build everything, and read data as the module was made to see it: a checkpoint predicts alone."""
        super().instantiate_classes()
        self.datamodule.facts = {name: self.model.hparams[name] for name in self.datamodule.fitted}

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Return a trainer; one that works in a run folder logs to metrics.csv and has the standard callbacks."""
        init = self.config_init
        self.trainer_defaults["callbacks"] = make_progress(init.monitor, init.trainer)
        if self.run is None:
            return super().instantiate_trainer(logger=False, enable_checkpointing=False, **kwargs)
        self.trainer_defaults["callbacks"] += standard_callbacks(init.monitor, init.checkpoint, self.run)
        loggers = [MetricsCsv(self.run), *_as_list(init.trainer.logger)]
        plugins = [AtomicCheckpointIO(), *_as_list(init.trainer.plugins)]
        return super().instantiate_trainer(logger=loggers, plugins=plugins, **kwargs)


def _as_list(logger: Any) -> list[Any]:
    """Return the configured loggers as a list, without true and false."""
    return [one for one in (logger if isinstance(logger, list) else [logger]) if one not in (None, True, False)]


def _split(arguments: Sequence[str], *own: str) -> tuple[argparse.Namespace, list[str]]:
    """Return the command's `own` options, which are no configuration, and the rest with every --config first.

    jsonargparse lets a later --config win over an earlier flag; here a flag wins wherever it stands.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-c", "--config", action="append", default=[])
    for option in own:
        parser.add_argument(option)
    options, rest = parser.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        print("".join(f"  {option} VALUE  {OWN_OPTIONS[option]}\n" for option in own) + "\nand the configuration:\n")
    for path in options.config:
        require_yaml(Path(path))
    return options, [f"--config={path}" for path in options.config] + rest


OWN_OPTIONS = {
    "--resume": "go on with a run that was stopped: latest, or its folder",
    "--run": "the run whose best checkpoint is used: latest (default), or its folder",
    "--output": "the file to write; default in the run's folder",
    "--new_wandb_run": "true: the resumed run gets a W&B run of its own",
    "--repeat": "train this many times, each with the next seed; ends with mean and spread",
    "--folds": "train this many times, each with another fold of train and val held out",
}


def fit(arguments: Sequence[str]) -> None:
    """Train into a new run folder, or go on in an old one, then export the best checkpoint."""
    quieten()
    options, rest = _split(arguments, "--resume", "--new_wandb_run", "--repeat", "--folds")
    if options.repeat or options.folds:
        repeat(options, rest, DEFAULT)
        return
    old = find_run(options.resume) if options.resume else None
    if old and options.new_wandb_run:
        rest.append(f"--trainer.logger.init_args.id={old.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    cli = TrainingCLI(rest, old / "config.yaml" if old else DEFAULT, lambda: old or new_run())
    require_same_facts(cli)
    inputs = cli.model.example_inputs(cli.datamodule.sample_batch())
    cli.model.try_on(inputs)
    cli.model.example_input_array = inputs  # so the summary shows what shape enters and leaves every layer
    if cli.run is None:  # fast_dev_run: every line of code once, nothing kept
        cli.trainer.fit(cli.model, datamodule=cli.datamodule)
        say_next("debug")
        return
    config, data = yaml.safe_load(cli.parser.dump(cli.config, skip_unset=False)), fingerprint(cli.datamodule)
    start, resume = check_resume(old, config, data, cli.trainer) if old else (None, None)
    if resume and not start:
        (cli.run / "metrics.csv").unlink(missing_ok=True)
    record = _begin(cli, cli.run, {"config": config, "data": data, "seed": config["seed_everything"]}, resume)
    monitor = cli.config.monitor
    try:
        with shared_with_children(cli.run), closing_loggers(), record.watching(monitor.metric, monitor.mode):
            cli.trainer.fit(cli.model, datamodule=cli.datamodule, ckpt_path=start, weights_only=True)
            _finish(cli, cli.run)
    except Stopped as stop:
        print(f"{cli.run} was {stop}; go on with: fit --resume {cli.run}", file=sys.stderr)
        sys.exit(EXIT_STOPPED)
    _say_next(cli, cli.run)


def _begin(cli: TrainingCLI, run: Path, facts: dict[str, Any], resume: dict[str, Any] | None) -> RunRecord:
    """Write the whole configuration, defaults included, so that the run can be repeated from it; open the record."""
    record = RunRecord(run, surroundings() | facts, resume)
    cli.trainer.callbacks.append(record)  # type: ignore[attr-defined]
    if cli.trainer.is_global_zero:
        temporary = run / ".config.tmp"  # replaced in one step: without its configuration no run can go on
        cli.parser.save(cli.config, temporary, skip_unset=False, overwrite=True)
        temporary.replace(run / "config.yaml")
        save_changes(run)
        point_latest_at(run)
    return record


@rank_zero_only
def _finish(cli: TrainingCLI, run: Path) -> None:
    """Export the best checkpoint and say where everything lies."""
    best, monitor = cli.trainer.checkpoint_callbacks[-1].best_model_score, cli.config.monitor  # type: ignore[attr-defined]
    reached = "" if best is None else compare_target(monitor.target, monitor.mode, float(best))
    shown = "" if best is None else f" ({monitor.metric} {best:.4f}{reached})"
    print(f"\nTrained: {find_checkpoint(run, 'best')}{shown}, curves in {run / 'metrics.csv'}")
    if cli.config.export_onnx:
        _export(cli, run, run / "model.onnx")


@rank_zero_only
def _say_next(cli: TrainingCLI, run: Path) -> None:
    """Add what the workbench knows of a run whose record is complete, and say what comes next."""
    after("fit", cli, run)
    say_next("fit")


def best_module(cli: TrainingCLI, run: Path) -> BaseModule:
    """Return the best checkpoint of `run`, loaded anew: float32, on the CPU, without what training left in it."""
    checkpoint = find_checkpoint(run, "best")
    return type(cli.model).load_from_checkpoint(checkpoint, map_location="cpu", weights_only=True).float()


def _export(cli: TrainingCLI, run: Path, path: Path) -> None:
    """Export the best checkpoint of `run`."""
    module = best_module(cli, run)
    difference = export_onnx(module, dict(cli.model.hparams), cli.datamodule.sample_batch(), path)
    print(f"Exported: {path}, {path.stat().st_size / 1e6:.1f} MB, differs from torch by {difference:.0e}")
    after("export", cli, run, path)


def open_run(arguments: Sequence[str], *own: str) -> tuple[argparse.Namespace, TrainingCLI, Path]:
    """Return the command's `own` options, and the run that --run names, configured as it was, with its folder."""
    quieten()
    options, rest = _split(arguments, "--run", *own)
    run = find_run(options.run or "latest")
    return options, TrainingCLI(rest, run / "config.yaml"), run


def export(arguments: Sequence[str]) -> None:
    """Write a run's best checkpoint as ONNX and check it against torch on validation samples."""
    options, cli, run = open_run(arguments, "--output")
    _export(cli, run, Path(options.output or run / "model.onnx"))
    say_next("export")


def validate(arguments: Sequence[str]) -> None:
    """Measure a run's best checkpoint on the validation split."""
    _evaluate(arguments, "validate")


def test(arguments: Sequence[str]) -> None:
    """Measure a run's best checkpoint on the test split."""
    _evaluate(arguments, "test")


def _evaluate(arguments: Sequence[str], verb: str) -> None:
    quieten()
    options, rest = _split(arguments, "--run")
    run = find_run(options.run or "latest")
    checkpoint = find_checkpoint(run, "best")
    cli = TrainingCLI(rest, run / "config.yaml")
    require_same_facts(cli)
    measure = getattr(cli.trainer, verb)
    (metrics,) = measure(cli.model, datamodule=cli.datamodule, ckpt_path=checkpoint, weights_only=True)
    if cli.trainer.is_global_zero:
        file = metrics_file(run, cli.datamodule, cli.config.trainer, verb)
        file.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        print(f"Measured: {checkpoint}, written to {file}")
        if file.stem == f"{verb}_metrics":  # what is measured of other data says nothing of this run
            after(verb, cli, run)
        say_next(verb)


def predict(arguments: Sequence[str]) -> None:
    """Write a run's predictions to a CSV file, a row for each sample."""
    quieten()
    options, rest = _split(arguments, "--run", "--output")
    run = find_run(options.run or "latest")
    checkpoint = find_checkpoint(run, "best")
    # On one device, so that the rows are complete and in order; what else is written goes into the run's folder.
    fixed = ["--trainer.devices=1", "--trainer.strategy=auto", f"--trainer.default_root_dir={run}"]
    cli = TrainingCLI([*rest, *fixed], run / "config.yaml")
    batches = cli.trainer.predict(cli.model, datamodule=cli.datamodule, ckpt_path=checkpoint, weights_only=True)
    rows = [row for batch in batches or [] for row in batch]
    output = Path(options.output) if options.output else unused(run / "predictions.csv")
    with output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"Predicted: {len(rows)} samples, written to {output}")
    after("predict", cli, run)
    say_next("predict")


def require_same_facts(cli: TrainingCLI) -> None:
    """Refuse data whose classes (or whatever it provides) are not those the module was made for."""
    for name in set(cli.datamodule.provides) - set(cli.datamodule.fitted):
        here, there = getattr(cli.datamodule, name), cli.model.hparams[name]
        if here != there:
            raise UserError(f"{name} of the data is {here}, but the model was made for {there}; choose other data.")
