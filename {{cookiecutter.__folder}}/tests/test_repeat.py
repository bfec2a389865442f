"""Several seeds or folds as one group of runs, with mean and spread."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from {{ cookiecutter.package }} import repeat
from {{ cookiecutter.package }}.cli import main

from conftest import PROJECT, SHORT

FAST = (*SHORT, "--trainer.logger=false", "--export_onnx=false", "--trainer.enable_model_summary=false")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def group() -> dict:
    (file,) = Path("runs").glob("*.json")
    return json.loads(file.read_text(encoding="utf-8")) | {"file": file}


def record(run: str) -> dict:
    return json.loads(Path("runs", run, "record.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_seeds_are_runs_of_their_own_and_end_with_mean_and_spread(workspace: Path, capfd):
    main(["fit", "--repeat=2", *FAST])
    found = group()
    runs = [record(run) for run in found["runs"]]
    assert [run["seed"] for run in runs] == [42, 43] and {run["status"] for run in runs} == {"finished"}
    values = [run["best"]["val/loss"] for run in runs]
    loss = found["summary"]["val/loss"]
    assert values[0] != values[1] and loss["mean"] == pytest.approx(np.mean(values))
    assert loss["ci95"] == pytest.approx(12.706 * np.std(values, ddof=1) / 2**0.5)
    assert "95 % interval" in capfd.readouterr().out
    # As a run that is started alone: nothing came over from the one before.
    main(["fit", *FAST, "--seed_everything=43"])
    alone, second = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in (Path("runs/latest"), Path("runs", list(found["runs"])[1]))
    )
    assert all(torch.equal(alone[name], second[name]) for name in alone)


@pytest.mark.slow
def test_a_group_goes_on_where_it_was_stopped(workspace: Path):
    with pytest.raises(SystemExit) as end:
        main(["fit", "--repeat=2", *FAST, "--data.root=none"])
    assert end.value.code == 2
    file = group()["file"]
    content = json.loads(file.read_text(encoding="utf-8"))
    content["arguments"] = list(FAST)
    repeat.write(file, content)
    main(["fit", "--repeat=2", f"--resume={file}"])
    before = [record(run)["started"] for run in group()["runs"]]
    main(["fit", "--repeat=2", f"--resume={file}"])  # all have finished: nothing is trained again
    assert [record(run)["started"] for run in group()["runs"]] == before


@pytest.mark.parametrize("arguments", [["--repeat=1"], ["--repeat=x"], ["--repeat=2", "--folds=2"]])
def test_a_number_that_cannot_be_is_refused(arguments: list[str], capsys):
    with pytest.raises(SystemExit) as end:
        main(["fit", *arguments])
    assert end.value.code == 2 and "whole number from 2" in capsys.readouterr().err


def test_the_interval_is_students():
    found = repeat.summary([{"val/loss": value} for value in (1.0, 2.0, 3.0, 4.0)])["val/loss"]
    assert found["mean"] == 2.5 and found["standard_deviation"] == pytest.approx(1.290994)
    assert found["ci95"] == pytest.approx(2.054260, rel=1e-3)  # 3.18245 x 1.290994 / 2
