"""How the network is trained and measured."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import CatMetric, MeanAbsoluteError, MeanMetric, R2Score

from ..practices.base_module import BaseModule

Batch = dict[str, Any]
Loss = Literal["mse", "mae", "huber", "quantile"]
SPLITS = ("train", "val", "test")


def regression_loss(kind: Loss, outputs: Tensor, target: Tensor, levels: Tensor) -> Tensor:
    """Return the mean loss of `outputs`, float (batch, 1), or (batch, levels) for quantile, against `target` (batch,).

    `huber` is quadratic up to one standard deviation and linear beyond. `quantile` is the pinball loss:
    Koenker and Bassett, Regression Quantiles, 1978.

    Raises:
        ValueError: The shapes do not agree. (batch,) against (batch, 1) would broadcast to a matrix, and the
            model would learn the mean of all targets without a word.
    """
    expected = (len(target), len(levels) if kind == "quantile" else 1)
    if target.ndim != 1 or outputs.shape != expected:
        shapes = f"outputs {tuple(outputs.shape)} and target {tuple(target.shape)}"
        raise ValueError(f"outputs must have shape {expected} and target ({len(target)},), but are {shapes}.")
    if kind == "quantile":
        error = target[:, None] - outputs
        return torch.maximum(levels * error, (levels - 1) * error).mean()
    functions: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
    return functions[kind](outputs[:, 0], target)


class TabularRegressor(BaseModule):
    """Predict a number and an interval for it, with any network over numbers and categories.

    Intervals are conformal: the validation split's errors say how wide they must be to hold the share
    `interval_coverage` of new rows like it, whatever the network. With the quantile loss their width follows the
    row. Source: Romano, Patterson, Candès, Conformalized Quantile Regression, 2019.

    Args:
        network: Called with the number of features, the cardinalities and the number of outputs.
        numbers: Median, mean, standard deviation and missing share of each number column; null takes the data's.
        categories: Values of each category column, numbered from 1; null takes the data's.
        target_statistics: Mean and standard deviation of the target; null takes the data's.
        loss: mse, mae or huber for one number; quantile for the median and the interval's ends.
        interval_coverage: Share of targets that intervals are to hold.
        optimization: Arguments of the base module.
    """

    output_name = "prediction_lower_upper"
    input_range: ClassVar[str] = (
        "numbers float32 in the table's units, missing bool, categories int64: place in the column's list, from 1, "
        "0 if unknown; columns in the order of hyper_parameters; outputs in the target's units"
    )

    def __init__(
        self,
        network: Callable[[int, list[int], int], nn.Module],
        numbers: dict[str, list[float]] | None = None,
        categories: dict[str, list[str]] | None = None,
        target_statistics: list[float] | None = None,
        loss: Loss = "mse",
        interval_coverage: float = 0.9,
        **optimization: Any,
    ) -> None:
        super().__init__(**optimization)
        # Run from the command line this keeps the configuration, plain values only, so that a
        # checkpoint loads without unpickling code and rebuilds its module without being told how.
        self.save_hyperparameters()
        if not (numbers or categories) or not target_statistics:
            raise ValueError("numbers or categories, and target_statistics, must be given.")
        if not 0 < interval_coverage < 1:
            raise ValueError(f"interval_coverage must lie between 0 and 1, but is {interval_coverage}.")
        self.loss, self.interval_coverage = loss, interval_coverage
        tail = (1 - interval_coverage) / 2
        self.register_buffer("levels", torch.tensor([tail, 0.5, 1 - tail]), persistent=False)
        statistics = torch.tensor(list((numbers or {}).values()), dtype=torch.float32).reshape(-1, 4)
        self.register_buffer("statistics", statistics, persistent=False)  # they come with the hyperparameters
        self.register_buffer("target_statistics", torch.tensor(target_statistics), persistent=False)
        self.register_buffer("interval_margin", torch.zeros(()))  # in the target's units; 0 until validated
        cardinalities = [len(values) + 1 for values in (categories or {}).values()]
        self.network = network(2 * len(statistics), cardinalities, 3 if loss == "quantile" else 1)
        # Objects of its own for each split, or one split's batches would count in another's.
        self.losses = nn.ModuleDict({f"{split}_loss": MeanMetric() for split in SPLITS})
        self.mae = nn.ModuleDict({f"{split}_mae": MeanAbsoluteError() for split in SPLITS})
        self.r2 = nn.ModuleDict({f"{split}_r2": R2Score() for split in SPLITS})
        self.scores, self.coverage, self.width = CatMetric(), MeanMetric(), MeanMetric()

    def outputs(
        self, numbers: Tensor | None = None, missing: Tensor | None = None, categories: Tensor | None = None
    ) -> Tensor:
        """Return the network's outputs, float32 (batch, 1 or 3), in standard deviations from the target's mean."""
        inputs = numbers if categories is None else categories
        if inputs is None:
            raise ValueError("numbers or categories must be given.")
        if numbers is None or missing is None:
            numbers, missing = inputs.new_zeros((len(inputs), 0), dtype=torch.float32), inputs[:, :0].bool()
        median, mean, deviation, share = self.statistics.unbind(1)  # type: ignore[operator]
        scaled = (torch.where(missing, median, numbers) - mean) / deviation
        # That a value is missing may itself tell something, if training has seen it missing.
        indicators = (missing & (share > 0)).float()
        codes = inputs.new_zeros((len(inputs), 0), dtype=torch.int64) if categories is None else categories
        result: Tensor = self.network(torch.cat([scaled, indicators], dim=1), codes).float()
        return result

    def forward(
        self, numbers: Tensor | None = None, missing: Tensor | None = None, categories: Tensor | None = None
    ) -> Tensor:
        """Return prediction, lower and upper end, float32 (batch, 3) in the target's units.

        `numbers` is float (batch, numbers) in the table's units, `missing` bool of its shape, `categories` int64
        (batch, categories).
        """
        return self._with_interval(self.outputs(numbers, missing, categories))

    def _with_interval(self, outputs: Tensor) -> Tensor:
        mean, deviation = self.target_statistics.unbind()  # type: ignore[operator]
        ends = outputs.sort(dim=1).values * deviation + mean  # quantiles that cross are put in order
        margin: Any = self.interval_margin
        return torch.stack([ends[:, ends.shape[1] // 2], ends[:, 0] - margin, ends[:, -1] + margin], dim=1)

    def example_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return what `forward` takes of a batch: the kinds of columns that there are."""
        return {name: batch[name] for name in ("numbers", "missing", "categories") if batch[name].shape[1]}

    def _step(self, batch: Batch, split: str) -> tuple[Tensor, Tensor]:
        """Update the split's metrics; return the batch's mean loss and its (batch, 3) predictions."""
        outputs, target = self.outputs(**self.example_inputs(batch)), batch["target"]
        mean, deviation = self.target_statistics.unbind()  # type: ignore[operator]
        loss = regression_loss(self.loss, outputs, (target - mean) / deviation, self.levels)  # type: ignore[arg-type]
        predicted = self._with_interval(outputs.detach())
        mean_loss: Any = self.losses[f"{split}_loss"]
        mae: Any = self.mae[f"{split}_mae"]
        r2: Any = self.r2[f"{split}_r2"]
        mean_loss.update(loss.detach(), weight=len(target))
        mae.update(predicted[:, 0], target)
        # R2 sums squares, which in float32 cancel where the target is large: so in standard deviations.
        r2.update((predicted[:, 0] - mean) / deviation, (target - mean) / deviation)
        # Objects, not numbers: Lightning computes them once an epoch over exactly all samples of all ranks.
        metrics = {f"{split}/loss": mean_loss, f"{split}/mae": mae, f"{split}/r2": r2}
        self.log_dict(metrics, batch_size=len(target), on_step=False, on_epoch=True, prog_bar=split == "val")
        return loss, predicted

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss to minimise."""
        loss, _ = self._step(batch, "train")
        self.log("train/loss_step", loss.detach(), batch_size=len(batch["target"]), prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Measure one batch of the validation split, and by how much its targets leave a margin of zero."""
        _, predicted = self._step(batch, "val")
        _, lower, upper = predicted.unbind(1)
        margin: Any = self.interval_margin
        self.scores.update(torch.maximum(lower - batch["target"], batch["target"] - upper) + margin)

    def on_validation_epoch_end(self) -> None:
        """Set the margin that holds the asked share of the validation split, before a checkpoint is written."""
        scores = self.scores.compute().sort().values
        self.scores.reset()
        rank = math.ceil((len(scores) + 1) * self.interval_coverage)  # + 1 for the row to come
        margin: Any = self.interval_margin  # in place: a tensor made in validation could not be loaded into later
        margin.copy_(scores[min(rank, len(scores)) - 1])

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Measure one batch of the test split, and whether its intervals hold what they promise."""
        _, predicted = self._step(batch, "test")
        _, lower, upper = predicted.unbind(1)
        self.coverage.update(((lower <= batch["target"]) & (batch["target"] <= upper)).float())
        self.width.update(upper - lower)
        metrics = {"test/interval_coverage": self.coverage, "test/interval_width": self.width}
        self.log_dict(metrics, batch_size=len(lower), on_step=False, on_epoch=True)

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Any]]:
        """Return for each row its name, the prediction and the interval, in the target's units."""
        predicted = self(**self.example_inputs(batch)).tolist()
        names = ("prediction", "lower", "upper")
        rows = zip(batch["id"], predicted, strict=True)
        return [{"row": r, **{n: float(f"{v:.7g}") for n, v in zip(names, p, strict=True)}} for r, p in rows]
