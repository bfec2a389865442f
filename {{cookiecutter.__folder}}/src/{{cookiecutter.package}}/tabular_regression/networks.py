"""Networks: each is called with (features, cardinalities, outputs) and maps two tensors to one.

`features` is the number of float inputs, `cardinalities` the number of values of each category,
unknown included.

TODO(you): network: one of configs/network/, or your own
Put your own here and name it in a file like configs/network/linear.yaml, then
`fit --model.network configs/network/mine.yaml`.
"""

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """A linear model and layers that learn what it misses, side by side, over numbers and embedded categories.

    Args:
        features: Numbers a row.
        cardinalities: Values of each category, with 0 for unknown.
        outputs: Numbers to predict.
        width: Units of a hidden layer.
        depth: Hidden layers; 0 leaves the linear model.
        dropout: Share of hidden units dropped in training.
        embedding_size: Numbers that a category becomes.
    """

    def __init__(
        self,
        features: int,
        cardinalities: list[int],
        outputs: int,
        width: int = 64,
        depth: int = 2,
        dropout: float = 0.1,
        embedding_size: int = 4,
    ) -> None:
        super().__init__()
        # Index 0, unseen in training, stays the zero vector: the middle of the others, not a random place.
        self.embeddings = nn.ModuleList(nn.Embedding(n, embedding_size, padding_idx=0) for n in cardinalities)
        size = features + embedding_size * len(cardinalities)
        self.linear = nn.Linear(size, outputs)
        layers: list[nn.Module] = []
        for layer in range(depth):
            layers += [nn.Linear(width if layer else size, width), nn.ReLU(), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers, nn.Linear(width, outputs)) if depth else None

    def forward(self, features: Tensor, categories: Tensor) -> Tensor:
        """Return (batch, outputs) for `features`, float (batch, features), and int64 `categories` (batch, columns)."""
        embedded = [embed(categories[:, i]) for i, embed in enumerate(self.embeddings)]
        inputs = torch.cat([features, *embedded], dim=1)
        outputs: Tensor = self.linear(inputs)
        return outputs if self.hidden is None else outputs + self.hidden(inputs)
