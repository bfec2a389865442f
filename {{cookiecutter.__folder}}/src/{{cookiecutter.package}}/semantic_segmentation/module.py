"""How the network is trained and measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassJaccardIndex
from torchvision.io import write_png
from torchvision.transforms import v2

from ..practices.base_module import BaseModule
from ..practices.counting import native_counts
from ..practices.losses import LOSSES, Loss
from ..reading.masks import IGNORED, overlay, write_mask

Batch = dict[str, Any]
SPLITS = ("train", "val", "test")


class SemanticSegmenter(BaseModule):
    """Label each pixel with any network that maps (batch, 3, height, width) to (batch, classes, height, width).

    Args:
        network: Called with the number of classes; in YAML a class path and its other arguments.
        class_names: Names of the classes in the order of their labels; null takes the data's.
        loss: cross_entropy; dice, to which all classes count the same; both; focal, to which hard pixels count more.
        mean: Of each colour channel in 0 to 1, subtracted inside the model. The default is ImageNet's.
        std: Of each colour channel in 0 to 1, divided by inside the model.
        overlays: Whether predict also writes pictures of the labels laid over the images.
        optimization: Arguments of the base module.
    """

    input_range: ClassVar[str] = "float32 0 to 1; normalisation is part of the model"

    def __init__(
        self,
        network: Callable[[int], nn.Module],
        class_names: list[str] | None = None,
        loss: Loss = "dice_cross_entropy",
        mean: tuple[float, float, float] = (0.485, 0.456, 0.406),
        std: tuple[float, float, float] = (0.229, 0.224, 0.225),
        overlays: bool = False,
        **optimization: Any,
    ) -> None:
        super().__init__(**optimization)
        # Run from the command line this keeps the configuration, plain values only, so that a
        # checkpoint loads without unpickling code and rebuilds its module without being told how.
        self.save_hyperparameters()
        if not class_names:
            raise ValueError("class_names must name at least one class.")
        self.class_names, self.loss, self.overlays = class_names, loss, overlays
        self.normalize = v2.Normalize(list(mean), list(std))
        self.network = network(len(class_names))
        # Objects of its own for each split, or one split's batches would count in another's.
        iou = MulticlassJaccardIndex(
            len(class_names), average="none", ignore_index=IGNORED, zero_division=float("nan"), validate_args=False
        )
        self.iou = nn.ModuleDict({f"{split}_iou": iou.clone() for split in SPLITS})
        self.losses = nn.ModuleDict({f"{split}_loss": MeanMetric() for split in SPLITS})

    def forward(self, image: Tensor) -> Tensor:
        """Return logits, float32 (batch, classes, h, w), for `image`, float (batch, 3, h, w) in 0 to 1."""
        # In mixed precision the network's output is half; the loss and the metrics need float32.
        logits: Tensor = self.network(self.normalize(image)).float()
        return logits

    def example_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return what `forward` takes of a batch."""
        return {"image": batch["image"]}

    def _step(self, batch: Batch, split: str) -> Tensor:
        """Update the split's metrics and return the batch's loss."""
        logits, mask = self(batch["image"]), batch["mask"]
        # Measured image by image: the Dice of a batch depends on what else is in it, and so on the devices' number.
        parts = [(logits, mask)] if split == "train" else zip(logits.split(1), mask.split(1), strict=True)
        losses = torch.stack([LOSSES[self.loss](*part) for part in parts])
        iou: Any = self.iou[f"{split}_iou"]
        mean_loss: Any = self.losses[f"{split}_loss"]
        with native_counts():
            iou.update(logits.detach().argmax(1), mask)
        mean_loss.update(losses.detach(), weight=len(mask) / len(losses))
        # An object, not a number: Lightning computes it once an epoch over exactly all images of all ranks.
        self.log(f"{split}/loss", mean_loss, batch_size=len(mask), on_step=False, on_epoch=True)
        return losses.mean()

    def _log_iou(self, split: str) -> None:
        """Log the IoU over all pixels of all ranks, of each class and their mean; a class that is nowhere has none.

        Source: Everingham et al., The Pascal Visual Object Classes Challenge, 2010.
        """
        iou: Any = self.iou[f"{split}_iou"]
        values = iou.compute()
        iou.reset()
        self.log(f"{split}/mean_iou", values.nanmean(), prog_bar=split == "val")
        found = zip(self.class_names, values, strict=True)
        self.log_dict({f"{split}/iou_{name}": value for name, value in found if not value.isnan()})

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss to minimise."""
        loss = self._step(batch, "train")
        self.log("train/loss_step", loss.detach(), batch_size=len(batch["mask"]), prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Measure one batch of the validation split."""
        self._step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Measure one batch of the test split."""
        self._step(batch, "test")

    def on_train_epoch_end(self) -> None:
        """Log what the epoch's batches have shown."""
        self._log_iou("train")

    def on_validation_epoch_end(self) -> None:
        """Log what the validation split has shown."""
        self._log_iou("val")

    def on_test_epoch_end(self) -> None:
        """Log what the test split has shown."""
        self._log_iou("test")

    def on_predict_start(self) -> None:
        """Choose a folder for the masks in the run's folder, one that does not exist."""
        run = Path(self.trainer.default_root_dir)
        names = ("predictions", *(f"predictions-{number}" for number in range(2, 1000)))
        self.folder = next(run / name for name in names if not (run / name).exists())

    def predict_step(self, batch: Batch, batch_idx: int) -> list[dict[str, Any]]:
        """Write each image's labels as PNG of its size; return its path, the PNG's name and each class's share."""
        rows = []
        for index, labels in enumerate(self(batch["image"]).argmax(1).to(torch.uint8).cpu()):
            name, size = batch["name"][index], tuple(batch["size"][index].tolist()) if "size" in batch else None
            write_mask(self.folder / f"{name}.png", labels, size)
            if self.overlays:
                write_png(overlay(batch["image"][index].cpu(), labels), str(self.folder / f"{name}-overlay.png"))
            shares = labels.flatten().bincount(minlength=len(self.class_names)) / labels.numel()
            columns = zip(self.class_names, shares.tolist(), strict=True)
            masks = {"path": batch["path"][index], "mask": f"{name}.png"}
            rows.append(masks | {f"share_{label}": round(share, 6) for label, share in columns})
        return rows
