"""How the network is trained and measured."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from ..practices.base_module import BaseModule
from ..practices.counting import native_counts
from ..practices.focal import focal_loss
from .data import Tokenizer

Batch = dict[str, Any]
Loss = Literal["cross_entropy", "focal"]


class TextClassifier(BaseModule):
    """Classify texts with any network that maps tokens (batch, length) to (batch, classes).

    Args:
        network: Called with the numbers of tokens and of classes; in YAML a class path and its other arguments.
        class_names: Names of the classes in the order of their labels; null takes the data's.
        vocabulary: What tokens stand for, from 2 on; null takes the data's. 0 is padding, 1 unknown.
        tokenizer: What a token is: a character, or a byte of UTF-8; null takes the data's.
        loss: What is minimised; focal heeds samples less that are right already, as most of a common class are.
        label_smoothing: Share of the target spread over all classes, against overconfidence.
        optimization: Arguments of the base module.
    """

    dynamic_axes: ClassVar[dict[int, str]] = {0: "batch", 1: "length"}
    input_range: ClassVar[str] = (
        "tokens int64: place of each character (in NFC; or byte, see hyper_parameters.tokenizer) in "
        "hyper_parameters.vocabulary plus 2, 1 if it is not there, 0 after the text's end"
    )

    def __init__(
        self,
        network: Callable[[int, int], nn.Module],
        class_names: list[str] | None = None,
        vocabulary: list[str] | None = None,
        tokenizer: Tokenizer | None = None,
        loss: Loss = "cross_entropy",
        label_smoothing: float = 0.1,
        **optimization: Any,
    ) -> None:
        super().__init__(**optimization)
        # Run from the command line this keeps the configuration, plain values only, so that a
        # checkpoint loads without unpickling code and rebuilds its module without being told how.
        self.save_hyperparameters()
        if not class_names or not vocabulary or not tokenizer:
            raise ValueError("class_names, vocabulary and tokenizer must be given.")
        self.class_names, self.loss, self.label_smoothing = class_names, loss, label_smoothing
        self.network = network(len(vocabulary) + 2, len(class_names))
        # Add metrics of yours here. Objects of its own for each split, or one split's batches would
        # count in another's; in a ModuleDict, so that they move to the device.
        metrics = MetricCollection(
            {
                "accuracy": MulticlassAccuracy(len(class_names), average="micro"),
                "macro_f1": MulticlassF1Score(len(class_names), average="macro"),
            }
        )
        splits = ("train", "val", "test")
        self.metrics = nn.ModuleDict({f"{split}_metrics": metrics.clone(prefix=f"{split}/") for split in splits})
        self.losses = nn.ModuleDict({f"{split}_loss": MeanMetric() for split in splits})

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, float32 of shape (batch, classes), for `tokens`, int64 (batch, length) with 0 for padding."""
        # In mixed precision the network's output is half; the loss and the metrics need float32.
        logits: Tensor = self.network(tokens).float()
        return logits

    def example_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return what `forward` takes of a batch."""
        return {"tokens": batch["tokens"]}

    def _step(self, batch: Batch, split: str) -> Tensor:
        """Update the split's metrics and return the batch's mean loss."""
        logits, labels = self(batch["tokens"]), batch["label"]
        loss = F.cross_entropy(logits, labels) if split != "train" else self._train_loss(batch, logits)
        metrics: Any = self.metrics[f"{split}_metrics"]
        mean_loss: Any = self.losses[f"{split}_loss"]
        with native_counts():
            metrics.update(logits.detach(), labels)
        mean_loss.update(loss.detach(), weight=len(labels))
        # Objects, not numbers: Lightning computes them once an epoch over exactly all samples of all ranks.
        self.log(f"{split}/loss", mean_loss, batch_size=len(labels), on_step=False, on_epoch=True)
        self.log_dict(metrics, batch_size=len(labels), on_step=False, on_epoch=True, prog_bar=split == "val")
        return loss

    def _train_loss(self, batch: Batch, logits: Tensor) -> Tensor:
        """Return the loss to minimise, a scalar; evaluation measures the cross-entropy, whatever was minimised."""
        criterion = focal_loss if self.loss == "focal" else F.cross_entropy
        return self.objective(batch, logits, criterion(logits, batch["label"], label_smoothing=self.label_smoothing))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss to minimise."""
        loss = self._step(batch, "train")
        self.log("train/loss_step", loss.detach(), batch_size=len(batch["label"]), prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Measure one batch of the validation split."""
        self._step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Measure one batch of the test split."""
        self._step(batch, "test")

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Any]]:
        """Return a row for each text: its name, the text, the predicted class and its probability."""
        best = torch.softmax(self(batch["tokens"]), dim=1).max(dim=1)
        columns = zip(batch["id"], batch["text"], best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            {"row": row, "text": text, "prediction": self.class_names[i], "probability": round(value, 6)}
            for row, text, i, value in columns
        ]
