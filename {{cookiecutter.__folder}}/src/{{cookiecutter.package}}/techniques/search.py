"""Search hyperparameters with Optuna, offline: `python -m PACKAGE.techniques.search --trials 20`.

What is searched stands in configs/search/optuna.yaml; further options are those of `fit`. Every trial is a run of
its own under runs/, and one that is behind the others is ended early. The study is kept in runs/<study>.log:
the same command with `--study` goes on with it. Needs the extra: pip install -e '.[search]'.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

from ..cli import guarded
from ..mistakes import Parser, require_yaml
from ..practices.errors import UserError
from ..record import read
from ..runs import RUNS, SHARED

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial, TrialState
except ModuleNotFoundError:
    sys.exit("error: the search needs Optuna; install it with: pip install -e '.[search]'")

SPACE = "configs/search/optuna.yaml"
FAILURES = 3  # in a row, which end the search
MODES = {"minimize": "min", "maximize": "max"}
PACKAGE = __package__.split(".")[0]


class EndBehind(Callback):
    """Tell the study how a trial fares after each validation, and end the run when the study's pruner says so.

    Args:
        study: Name of the study.
        trial: Number of the trial in it.
        space: File with the metric and the pruner's options.
    """

    def __init__(self, study: str, trial: int, space: str = SPACE) -> None:
        self.study, self.number, self.space = study, trial, space

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the metric as the value of this epoch."""
        if trainer.sanity_checking:
            return
        behind = trainer.is_global_zero and self._is_behind(trainer)
        # All ranks stop after the same epoch, or those that go on would wait for the others for ever.
        trainer.should_stop |= bool(trainer.strategy.broadcast(behind))

    def _is_behind(self, trainer: Trainer) -> bool:
        space = read_space(self.space)
        study = open_study(self.study, space)
        found = study.trials[self.number]
        if found.state.is_finished():  # the run goes on by itself, after the search
            return False
        trial = Trial(study, found._trial_id)
        trial.report(float(trainer.callback_metrics[space["metric"]]), trainer.current_epoch)
        if trial.should_prune():
            trial.set_user_attr("ended_early", True)
            return True
        return False


def read_space(path: str) -> dict[str, Any]:
    """Return metric, direction, pruning and parameters of the file `path`.

    Raises:
        UserError: The file is missing, no YAML, or lacks one of them.
    """
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist; --space names the file that says what is searched, like {SPACE}.")
    require_yaml(Path(path))
    space: dict[str, Any] = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    if missing := {"metric", "direction", "pruning", "parameters"} - set(space):
        raise UserError(f"{path} lacks {', '.join(sorted(missing))}; see {SPACE}.")
    if space["direction"] not in MODES:
        raise UserError(f"direction in {path} is {space['direction']}, but must be minimize or maximize.")
    return space


def distribution(name: str, options: dict[str, Any]) -> BaseDistribution:
    """Return what `options` describe: choices, or low and high, with log and step.

    Raises:
        UserError: They describe nothing.
    """
    try:
        if "choices" in options:
            return CategoricalDistribution(**options)
        # YAML reads 1e-4, without a point, as text.
        bounds: dict[str, Any] = {key: float(v) if isinstance(v, str) else v for key, v in options.items()}
        whole = all(isinstance(bounds.get(key, 1), int) for key in ("low", "high", "step"))
        return IntDistribution(**bounds) if whole else FloatDistribution(**bounds)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        needed = f"{name} needs choices, or low and high (and log, step), but is {options}"
        raise UserError(f"{needed} ({type(error).__name__}: {error}).") from error


def open_study(name: str, space: dict[str, Any]) -> optuna.Study:
    """Return the study `name`, a new one where there is none; it lies in one file, without a server."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    RUNS.mkdir(exist_ok=True)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(RUNS / f"{name}.log")))
    pruner = optuna.pruners.MedianPruner(**space["pruning"])
    return optuna.create_study(
        study_name=name, storage=storage, direction=space["direction"], pruner=pruner, load_if_exists=True
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run trials until there are as many as asked for, then say which was best and how to train with it."""
    parser = Parser(prog=f"python -m {PACKAGE}.techniques.search", allow_abbrev=False)
    parser.add_argument("--trials", type=int, default=20, help="how many the study shall have in the end")
    parser.add_argument("--study", default=time.strftime("%Y%m%d-%H%M%S-search"), help="its name; an old one goes on")
    parser.add_argument("--space", default=SPACE, help="the file that says what is searched")
    options, rest = parser.parse_known_args(arguments)
    space = read_space(options.space)
    distributions = {name: distribution(name, one) for name, one in space["parameters"].items()}
    study = open_study(options.study, space)
    for stopped in study.get_trials(states=[TrialState.RUNNING]):  # it was killed with the search: once more
        study.tell(stopped.number, state=TrialState.FAIL)
        study.enqueue_trial(stopped.params)
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    while len(done := study.get_trials(states=ended)) < options.trials:
        # A search that goes on must not draw again what it drew first.
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
        trial = study.ask(distributions)
        train(study, trial, space, options.space, rest)
        last = study.trials[-FAILURES:]
        if len(last) == FAILURES and all(trial.state == TrialState.FAIL for trial in last):
            raise UserError(f"{FAILURES} trials in a row failed, see above; the study is kept as {options.study}.")
    report(done, space, rest)


def monitored(space: dict[str, Any]) -> list[str]:
    """Return the options of `fit` that make the best checkpoint that of the metric which is searched by."""
    return [f"--monitor.metric={space['metric']}", f"--monitor.mode={MODES[space['direction']]}"]


def train(study: optuna.Study, trial: Trial, space: dict[str, Any], path: str, rest: list[str]) -> None:
    """Run `trial` in a process of its own, so that nothing leaks into the next, and tell the study how it ended."""
    run = RUNS / f"{study.study_name}-trial{trial.number}"
    run.mkdir(parents=True, exist_ok=True)
    callback = {"study": study.study_name, "trial": trial.number, "space": path}
    overlay = run / "search.yaml"
    added = {"class_path": f"{PACKAGE}.techniques.search.EndBehind", "init_args": callback}
    overlay.write_text(yaml.safe_dump({"trainer": {"callbacks+": [added]}}), encoding="utf-8")
    # First, as flags for a callback reach the last one only, which must be that of an overlay in `rest`.
    words = [f"--config={overlay}", *rest, *monitored(space), *flags(trial.params)]
    environment = os.environ | {SHARED: str(run), "WANDB_RUN_GROUP": study.study_name}
    print(f"\nTrial {trial.number}: {' '.join(flags(trial.params))}", flush=True)
    code = subprocess.run([sys.executable, "-m", PACKAGE, "fit", *words], env=environment, check=False).returncode
    if code == 2 and not (run / "checkpoints/last.ckpt").exists():  # it never began: a mistake that ends every trial
        study.tell(trial, state=TrialState.FAIL)
        raise UserError(f"trial {trial.number} was refused, see above; the study is kept as {study.study_name}.")
    value = read(run).get("best", {}).get(space["metric"])
    ended_early = study.trials[trial.number].user_attrs.get("ended_early", False)
    if code or value is None:
        study.tell(trial, state=TrialState.FAIL)
    elif ended_early:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, value)


def flags(parameters: dict[str, Any]) -> list[str]:
    """Return `parameters` as options of `fit`."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in parameters.items()}
    return [f"--{name}={text}" for name, text in texts.items()]


def report(done: list[FrozenTrial], space: dict[str, Any], rest: list[str]) -> None:
    """Print the finished trials, the best first, and the command that trains with the best."""
    complete = [trial for trial in done if trial.state == TrialState.COMPLETE]
    complete.sort(key=lambda trial: trial.value or 0.0, reverse=space["direction"] == "maximize")
    for trial in complete:
        print(f"{trial.value:12.5g}  trial {trial.number}: {' '.join(flags(trial.params))}")
    print(f"{len(done) - len(complete)} of {len(done)} trials were ended early, being behind the others.")
    if complete:
        print(f"Next: python -m {PACKAGE} fit {shlex.join([*rest, *monitored(space), *flags(complete[0].params)])}")


if __name__ == "__main__":
    guarded(main)
