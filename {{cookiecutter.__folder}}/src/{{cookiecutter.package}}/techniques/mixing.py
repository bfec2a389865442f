"""Mixup and CutMix: train on two images in one, with the label of each by its share; see configs/mixup.yaml."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torchvision.transforms import v2

from ..practices.errors import UserError


class Mixing(Callback):
    """Mix training batches on their device: blend whole images (mixup), or paste a piece of one (CutMix).

    A mixed batch has `shares`, float32 (batch, classes), for the loss; its `label` becomes the class with the larger
    share, by which accuracy is measured. Random draws are torch's own, so that seed and resume hold for them too.
    Source: Zhang et al., mixup, 2018; Yun et al., CutMix, 2019; torchvision's transforms.

    Args:
        mixup_alpha: Of the Beta distribution of mixup's shares: 0.2 leaves most images nearly whole, 1 blends evenly
            often; 0 does without mixup.
        cutmix_alpha: The same of CutMix's; 0 does without CutMix.
        probability: Share of batches that are mixed.

    Raises:
        UserError: Neither is used, or `probability` is none.
    """

    def __init__(self, mixup_alpha: float = 0.2, cutmix_alpha: float = 1.0, probability: float = 0.5) -> None:
        if not mixup_alpha > 0 and not cutmix_alpha > 0:
            raise UserError("mixup_alpha and cutmix_alpha of Mixing are both 0; leave the callback out instead.")
        if not 0 <= probability <= 1:
            raise UserError(f"probability of Mixing is {probability}, but must be from 0 to 1.")
        self.probability = probability
        kinds = {v2.MixUp: mixup_alpha, v2.CutMix: cutmix_alpha}
        self.kinds = [(kind, alpha) for kind, alpha in kinds.items() if alpha > 0]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Learn the number of classes."""
        count = len(pl_module.class_names)  # type: ignore[arg-type]
        self.mix = v2.RandomChoice([kind(alpha=alpha, num_classes=count) for kind, alpha in self.kinds])

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: dict[str, Any], batch_idx: int
    ) -> None:
        """Replace image and label of `batch`."""
        if torch.rand(()) < self.probability:
            batch["image"], batch["shares"] = self.mix(batch["image"], batch["label"])
            batch["label"] = batch["shares"].argmax(1)
