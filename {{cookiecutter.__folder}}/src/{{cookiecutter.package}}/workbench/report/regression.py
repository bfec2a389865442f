"""A regressor's pictures: predicted against true values, residuals, intervals, and the rows it misses most."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional import mean_absolute_error, mean_squared_error, r2_score

from .charts import BLUE, ORANGE, draw
from .evaluate import outputs, spread, training_batch
from .page import Picture, Section, Table

LIMIT, SHOWN, COLUMNS = 2000, 12, 8
WORST = "The largest errors first. Look for wrong entries, and for kinds of rows that training lacks."
BATCH = "The first rows of the first epoch, in their own units, before the model fills gaps and scales."
INTERVALS = "Intervals were fitted on this split, so only the test split says how many targets they really hold."
CAPTIONS = {
    "predicted against true": "On the line is right; a flatter slope is pulled to the mean. Bars are intervals.",
    "residuals": "No shape is good. A bend is what the inputs know and the model does not; a funnel is unequal noise.",
    "histogram of residuals": "Centred on 0 is unbiased. A long tail is a few rows that cost most: see below.",
}


def sections(cli: Any, module: Any, folder: Path) -> list[Section]:
    """Return what there is to see of a module whose forward gives (batch, 1 or 3): prediction, and an interval."""
    size = len(cli.datamodule.dataset("val"))
    indices = spread(size, LIMIT)
    found = [(batch, output.reshape(len(output), -1)) for batch, output in outputs(cli, module, indices)]
    target, predicted = torch.cat([b["target"] for b, _ in found]), torch.cat([output for _, output in found])
    rows = [row for batch, _ in found for row in cells(batch)]
    worst = (predicted[:, 0] - target).abs().argsort(descending=True, stable=True)[:SHOWN].tolist()
    batch = training_batch(cli.datamodule, SHOWN)
    columns = list(module.hparams["numbers"] or {})[:COLUMNS]
    header = ["row", "true", *["predicted", "lower", "upper"][: predicted.shape[1]], *columns]
    missed = [[rows[i][0], float(target[i]), *predicted[i].tolist(), *rows[i][1:]] for i in worst]
    seen = [[row[0], float(true), *row[1:]] for row, true in zip(cells(batch), batch["target"], strict=True)]
    looked = f"{len(indices)} of {size} validation samples."
    return [
        Section("Predictions", looked, errors(target, predicted), charts(target, predicted, folder)),
        Section("Most wrong", WORST, Table(header, missed)),
        Section("Training batch", BATCH, Table(["row", "true", *columns], seen)),
    ]


def cells(batch: dict[str, Any]) -> list[list[Any]]:
    """Return each row's name and its first numbers, NaN where one is missing."""
    numbers = batch["numbers"].masked_fill(batch["missing"], float("nan"))[:, :COLUMNS].tolist()
    return [[str(name), *values] for name, values in zip(batch["id"], numbers, strict=True)]


def errors(target: Tensor, predicted: Tensor) -> Table:
    """Return the errors, beside those of a prediction of the mean alone, and how many targets intervals hold."""
    mean, value = target.mean().expand_as(target), predicted[:, 0]
    rows: list[list[Any]] = [
        ["MAE", float(mean_absolute_error(value, target)), float(mean_absolute_error(mean, target))],
        ["RMSE", float(mean_squared_error(value, target) ** 0.5), float(mean_squared_error(mean, target) ** 0.5)],
        ["R2", float(r2_score(value, target)) if len(target) > 1 else None, 0.0],
    ]
    if predicted.shape[1] == 3:
        lower, upper = predicted[:, 1], predicted[:, 2]
        rows.append(["interval coverage", float(((lower <= target) & (target <= upper)).float().mean()), None])
        rows.append(["mean interval width", float((upper - lower).mean()), None])
    return Table(["", "model", "mean alone"], rows, INTERVALS if predicted.shape[1] == 3 else "")


def charts(target: Tensor, predicted: Tensor, folder: Path) -> list[Picture]:
    """Draw predicted over true values, residuals over predicted ones, and their histogram."""
    value, ends = predicted[:, 0], [float(target.min()), float(target.max())]
    residual = value - target

    def against(axes: Any) -> None:
        if predicted.shape[1] == 3:
            bars = torch.stack([value - predicted[:, 1], predicted[:, 2] - value]).clamp(min=0)
            axes.errorbar(target, value, bars, fmt="none", ecolor="#c9d9ec", linewidth=0.8)
        axes.scatter(target, value, s=10, color=BLUE, zorder=3)
        axes.plot(ends, ends, color=ORANGE)
        axes.set(xlabel="true", ylabel="predicted")

    def over(axes: Any) -> None:
        axes.scatter(value, residual, s=10, color=BLUE)
        axes.axhline(0, color=ORANGE)
        axes.set(xlabel="predicted", ylabel="predicted minus true")

    def histogram(axes: Any) -> None:
        axes.hist(residual.numpy(), bins=20, color=BLUE)
        axes.axvline(0, color=ORANGE)
        axes.set(xlabel="predicted minus true", ylabel="samples")

    paints = zip(CAPTIONS.items(), (against, over, histogram), strict=True)
    return [draw(folder / f"{n.replace(' ', '-')}.png", paint, n, caption) for (n, caption), paint in paints]
