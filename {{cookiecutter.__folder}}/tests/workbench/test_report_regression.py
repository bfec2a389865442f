"""A regressor's numbers in the report, beside ones computed in another way."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.training import best_module, open_run
from {{ cookiecutter.package }}.workbench.report import regression

from conftest import PLAIN


def test_the_errors_are_those_of_their_definitions():
    generator = torch.Generator().manual_seed(1)
    target = 100 + 20 * torch.randn(200, generator=generator)
    value = target + 5 * torch.randn(200, generator=generator)
    predicted = torch.stack([value, value - 6, value + 6], dim=1)
    rows = {row[0]: row[1:] for row in regression.errors(target, predicted).rows}
    y, p = target.double().numpy(), value.double().numpy()
    assert rows["MAE"] == pytest.approx([np.abs(p - y).mean(), np.abs(y - y.mean()).mean()], rel=1e-4)
    assert rows["RMSE"] == pytest.approx([((p - y) ** 2).mean() ** 0.5, y.std()], rel=1e-4)
    assert rows["R2"] == pytest.approx([1 - ((p - y) ** 2).sum() / ((y - y.mean()) ** 2).sum(), 0], rel=1e-3)
    assert rows["interval coverage"][0] == pytest.approx((np.abs(p - y) <= 6).mean(), abs=0.006)
    assert rows["mean interval width"][0] == pytest.approx(12, rel=1e-4)
    assert "interval coverage" not in {row[0] for row in regression.errors(target, predicted[:, :1]).rows}


def test_a_missing_value_is_none_in_the_rows():
    batch = {"numbers": torch.tensor([[1.5, 0.0]]), "missing": torch.tensor([[False, True]]), "id": ["one"]}
    ((name, first, second),) = regression.cells(batch)
    assert (name, first) == ("one", 1.5) and np.isnan(second)


def test_what_the_page_says_is_what_training_measured(workspace: Path):
    main(["fit", *PLAIN, "--trainer.max_epochs=3", "--export_onnx=false"])
    with Path("runs/latest/metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    best = min(rows, key=lambda row: float(row["val/loss"]))
    _, cli, run = open_run([])
    errors, worst, _ = regression.sections(cli, best_module(cli, run), run / "report")
    values = {row[0]: row[1] for row in errors.table.rows}
    assert values["MAE"] == pytest.approx(float(best["val/mae"]), rel=1e-4)
    assert values["R2"] == pytest.approx(float(best["val/r2"]), abs=1e-4)
    distances = [abs(row[1] - row[2]) for row in worst.table.rows]
    assert distances == sorted(distances, reverse=True) and distances[0] > values["MAE"]
