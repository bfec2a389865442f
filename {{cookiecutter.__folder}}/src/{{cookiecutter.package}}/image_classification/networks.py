"""Networks: each is called with the number of classes and maps (batch, 3, height, width) to (batch, classes).

TODO(you): network: one of configs/network/, or your own
Put your own here and name it in a file like configs/network/resnet18.yaml, then
`fit --model.network configs/network/mine.yaml`.
"""

import math
from itertools import pairwise
from typing import Any, Literal

import torchvision
from torch import Tensor, nn

from ..practices.errors import one_of
from ..practices.pretrained import load_pretrained, read_weights


class SmallCNN(nn.Module):
    """A plain convolutional network for small images: three halvings, then an average over the image.

    Args:
        num_classes: Outputs.
        width: Channels of the first block, doubled in each that follows.
        dropout: Share of the features that training leaves out.
        normalization: `group` for small batches and accumulation, where `batch` sees only the part on the
            device at a time (SyncBatchNorm joins devices, not steps).
    """

    def __init__(
        self,
        num_classes: int,
        width: int = 32,
        dropout: float = 0.1,
        normalization: Literal["batch", "group"] = "batch",
    ) -> None:
        super().__init__()
        channels = [3, width, 2 * width, 4 * width]
        blocks = [self._block(*pair, normalization) for pair in pairwise(channels)]
        self.features = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(channels[-1], num_classes))

    @staticmethod
    def _block(inputs: int, outputs: int, normalization: str) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        # Group statistics are of one sample, so a batch in two halves is the same as a whole one.
        groups = nn.GroupNorm(math.gcd(8, outputs), outputs)
        return nn.Sequential(convolution, groups if normalization == "group" else nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of shape (batch, classes) for `image` of shape (batch, 3, height, width)."""
        logits: Tensor = self.head(self.features(image))
        return logits


class TorchvisionNetwork(nn.Module):
    """Any classification network of torchvision's registry, by name.

    Args:
        num_classes: Outputs of the new head.
        name: As in `torchvision.models.list_models()`, such as resnet18.
        weights: Pretrained weights: `DEFAULT`, a name such as `IMAGENET1K_V1`, a file.pt of one's own, or null.
        options: Further arguments of the network, such as image_size of a vision transformer.
    """

    def __init__(
        self, num_classes: int, name: str, weights: str | None = None, options: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        one_of("network.name", name, torchvision.models.list_models(module=torchvision.models))
        self.network = torchvision.models.get_model(name, num_classes=num_classes, **(options or {}))
        if weights is not None and weights.endswith((".pt", ".pth")):
            load_pretrained(self.network, read_weights(weights))
        elif weights is not None:
            choices = torchvision.models.get_model_weights(name)
            choice = choices[one_of("network.weights", weights, choices.__members__)]
            load_pretrained(self.network, choice.get_state_dict(progress=False, check_hash=True))

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of shape (batch, classes) for `image` of shape (batch, 3, height, width)."""
        logits: Tensor = self.network(image)
        return logits
