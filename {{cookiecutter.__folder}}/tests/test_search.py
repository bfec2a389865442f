"""Hyperparameter search: the study, ending early what is behind, going on, and a failing trial."""

import os
import sys
from pathlib import Path

import pytest
import yaml

optuna = pytest.importorskip("optuna")

from {{ cookiecutter.package }}.practices.errors import UserError  # noqa: E402
from {{ cookiecutter.package }}.record import read  # noqa: E402
from {{ cookiecutter.package }}.techniques import search  # noqa: E402

from conftest import PACKAGE, PROJECT, SHORT  # noqa: E402

FAST = (*SHORT, "--trainer.logger=false", "--export_onnx=false", "--trainer.enable_model_summary=false")
SPACE = {
    "metric": "val/loss",
    "direction": "minimize",
    "pruning": {"n_startup_trials": 2, "n_warmup_steps": 1},
    "parameters": {"model.init_args.learning_rate": {"low": 0.001, "high": 0.01, "log": True}},
}


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(SPACE))
    return str(path)


def test_what_is_searched_exists_in_the_configuration(build):
    given = search.read_space(search.SPACE)
    for name, options in given["parameters"].items():
        found = search.distribution(name, options)
        value = found.choices[0] if hasattr(found, "choices") else found.low
        section, _, key = name.split(".")
        assert build(f"--{name}={value}").config[section].init_args[key] == value


@pytest.mark.parametrize(("others", "epochs"), [(1e-6, 2), (1e6, 4)], ids=["behind", "ahead"])
def test_a_trial_behind_the_others_ends_early_and_one_ahead_does_not(others, epochs, space: str, build):
    study = search.open_study("mine", SPACE)
    for _ in range(2):
        trial = study.ask()
        for epoch in range(4):
            trial.report(others, epoch)
        study.tell(trial, others)
    number = study.ask().number
    cli = build(*FAST, "--trainer.max_epochs=4")
    cli.trainer.callbacks.append(search.EndBehind("mine", number, space))
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert cli.trainer.current_epoch == epochs
    told = search.open_study("mine", SPACE).trials[number]
    assert len(told.intermediate_values) == epochs
    assert told.user_attrs.get("ended_early", False) is (epochs < 4)


@pytest.mark.slow
def test_a_study_trains_runs_of_its_own_goes_on_and_names_the_best(space: str, workspace: Path, capfd):
    search.main(["--trials=1", "--study=mine", f"--space={space}", *FAST])
    study = search.open_study("mine", SPACE)
    killed = study.ask({name: search.distribution(name, one) for name, one in SPACE["parameters"].items()})
    search.main(["--trials=2", "--study=mine", f"--space={space}", *FAST])
    trials = search.open_study("mine", SPACE).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert trials[2].params == killed.params, "a trial that was killed with the search is run again"
    for trial in (trials[0], trials[2]):
        run = Path(f"runs/mine-trial{trial.number}")
        config = yaml.safe_load((run / "config.yaml").read_text())
        rate = trial.params["model.init_args.learning_rate"]
        assert config["model"]["init_args"]["learning_rate"] == pytest.approx(rate)
        assert read(run)["best"]["val/loss"] == trial.value
    best = min((trials[0], trials[2]), key=lambda trial: trial.value)
    last = capfd.readouterr().out.strip().splitlines()[-1]
    assert last.startswith(f"Next: python -m {PACKAGE} fit ")
    assert f"learning_rate={best.params['model.init_args.learning_rate']}" in last


def test_a_mistake_ends_the_search_with_one_sentence(space: str, workspace: Path):
    with pytest.raises(UserError, match=r"none\.yaml does not exist"):
        search.main(["--space=none.yaml"])
    with pytest.raises(UserError, match="needs choices, or low and high"):
        search.distribution("model.init_args.learning_rate", {"lowest": 1})
    Path("half.yaml").write_text(yaml.safe_dump(SPACE | {"direction": "up"}))
    with pytest.raises(UserError, match="must be minimize or maximize"):
        search.main(["--space=half.yaml"])
    Path("half.yaml").write_text("a: [")
    with pytest.raises(UserError, match="is no YAML"):
        search.main(["--space=half.yaml"])
    Path("half.yaml").write_text("metric: val/loss\n")
    with pytest.raises(UserError, match="lacks direction, parameters, pruning"):
        search.main(["--space=half.yaml"])


@pytest.mark.parametrize("text", ["{low: 1e-4, high: 1e-2, log: true}", "{low: 0, high: 1, step: 0.1}"])
def test_numbers_as_people_write_them_are_a_range(text: str):
    found = search.distribution("model.init_args.learning_rate", yaml.safe_load(text))
    assert isinstance(found, optuna.distributions.FloatDistribution)
    with pytest.raises(UserError, match="needs choices, or low and high"):
        search.distribution("model.init_args.learning_rate", {"low": 0, "high": 1, "step": 0})
    assert search.flags({"a": None, "b": True, "c": "x"}) == ["--a=null", "--b=true", "--c=x"]


@pytest.mark.parametrize(("began", "trials", "told"), [(False, 1, "was refused"), (True, 3, "3 trials in a row")])
def test_a_search_ends_when_no_trial_can_succeed(began, trials, told, space: str, workspace: Path, monkeypatch):
    """The code is 2 for a mistake in the options, but also for a loss that was no number."""
    commands = []

    def refuse(words, **options):
        commands.append(words)
        if began:
            checkpoint = Path(f"runs/mine-trial{len(commands) - 1}/checkpoints/last.ckpt")
            checkpoint.parent.mkdir(parents=True)
            checkpoint.touch()
        return search.subprocess.CompletedProcess(words, 2)

    monkeypatch.setattr(search.subprocess, "run", refuse)
    with pytest.raises(UserError, match=told):
        search.main(["--trials=9", "--study=mine", f"--space={space}", "--config=mine.yaml"])
    assert len(commands) == trials
    assert commands[0].index("--config=mine.yaml") > 4, "the callback of one's own overlay is the last"


@pytest.mark.slow
def test_an_agent_of_weights_and_biases_can_start_what_the_sweep_file_says(workspace: Path, monkeypatch):
    file = PROJECT / "configs/search/wandb.yaml"
    if not file.exists():
        pytest.skip("another logger was chosen")
    from wandb.wandb_agent import Agent

    sweep = yaml.safe_load(file.read_text(encoding="utf-8"))
    values = {name: one["values"][0] if "values" in one else one["min"] for name, one in sweep["parameters"].items()}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name, value in {"PATH": path, "PYTHONPATH": str(PROJECT / "src"), "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SWEEP_ID": "sweep1", "WANDB_RUN_ID": "trial7"}.items():
        monkeypatch.setenv(name, value)
    agent = Agent(api=None, queue=None, sweep_id="sweep1")
    agent._sweep_command = [*sweep["command"], *SHORT, "--export_onnx=false"]
    arguments = {name: {"value": value} for name, value in values.items()}
    agent._command_run({"args": arguments, "program": sweep["program"], "run_id": "trial7"})
    assert agent._run_processes["trial7"].wait(timeout=300) == 0
    config = yaml.safe_load(Path("runs/latest/config.yaml").read_text())
    assert config["model"]["init_args"]["learning_rate"] == values["model.init_args.learning_rate"]
    assert list(Path("runs/latest/wandb").glob("offline-run-*-trial7")), "the sweep knows its runs by the agent's id"
