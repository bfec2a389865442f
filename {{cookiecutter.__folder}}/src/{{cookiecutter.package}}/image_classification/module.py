"""How the network is trained and measured."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchvision.transforms import v2

from ..practices.base_module import BaseModule
from ..practices.counting import native_counts
from ..practices.focal import focal_loss

Batch = dict[str, Any]
Loss = Literal["cross_entropy", "focal"]


class ImageClassifier(BaseModule):
    """Classify images with any network that maps (batch, 3, height, width) to (batch, classes).

    Args:
        network: Called with the number of classes; in YAML a class path and its other arguments.
        class_names: Names of the classes in the order of their labels; null takes the data's.
        loss: What is minimised; focal heeds samples less that are right already, as most of a common class are.
        label_smoothing: Share of the target spread over all classes, against overconfidence.
        mean: Of each colour channel in 0 to 1, subtracted inside the model. The default is ImageNet's.
        std: Of each colour channel in 0 to 1, divided by inside the model.
        optimization: Arguments of the base module.
    """

    input_range: ClassVar[str] = "float32 0 to 1; normalisation is part of the model"

    def __init__(
        self,
        network: Callable[[int], nn.Module],
        class_names: list[str] | None = None,
        loss: Loss = "cross_entropy",
        label_smoothing: float = 0.1,
        mean: tuple[float, float, float] = (0.485, 0.456, 0.406),
        std: tuple[float, float, float] = (0.229, 0.224, 0.225),
        **optimization: Any,
    ) -> None:
        super().__init__(**optimization)
        # Run from the command line this keeps the configuration, plain values only, so that a
        # checkpoint loads without unpickling code and rebuilds its module without being told how.
        self.save_hyperparameters()
        if not class_names:
            raise ValueError("class_names must name at least one class.")
        self.class_names = class_names
        self.loss, self.label_smoothing = loss, label_smoothing
        self.normalize = v2.Normalize(list(mean), list(std))
        self.network = network(len(class_names))
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

    def forward(self, image: Tensor) -> Tensor:
        """Return logits, float32 of shape (batch, classes), for `image`, float (batch, 3, height, width) in 0 to 1."""
        # In mixed precision the network's output is half; the loss and the metrics need float32.
        logits: Tensor = self.network(self.normalize(image)).float()
        return logits

    def example_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return what `forward` takes of a batch."""
        return {"image": batch["image"]}

    def _step(self, batch: Batch, split: str) -> Tensor:
        """Update the split's metrics and return the batch's mean loss."""
        logits, labels = self(batch["image"]), batch["label"]
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
        targets = batch["shares"] if "shares" in batch else batch["label"]  # mixed images have shares of classes
        criterion = focal_loss if self.loss == "focal" else F.cross_entropy
        return self.objective(batch, logits, criterion(logits, targets, label_smoothing=self.label_smoothing))

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
        """Return a row for each image: path, predicted class and its probability."""
        probabilities = torch.softmax(self(batch["image"]), dim=1)
        best = probabilities.max(dim=1)
        columns = zip(batch["path"], best.indices.tolist(), best.values.tolist(), strict=True)
        return [{"path": p, "prediction": self.class_names[i], "probability": round(v, 6)} for p, i, v in columns]
