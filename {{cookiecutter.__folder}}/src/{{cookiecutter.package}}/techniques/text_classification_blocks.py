"""A network of blocks for texts: `fit --model.network configs/network/blocks.yaml`."""

import torch
from torch import Tensor, nn

from .blocks import passed_through


class BlockNetwork(nn.Module):
    """An embedding, blocks one after the other, the average over the text, and a linear head.

    Args:
        num_tokens: Padding, unknown and the vocabulary.
        num_classes: Outputs.
        blocks: Modules called with states, float (batch, length, width), and a bool mask (batch, length) that is
            false in the padding, whose states must change no other; each returns new states.
        width: Numbers that a token becomes.
        dropout: Share of numbers dropped in training, before the blocks and before the head.
    """

    def __init__(
        self, num_tokens: int, num_classes: int, blocks: list[nn.Module], width: int = 64, dropout: float = 0.1
    ) -> None:
        super().__init__()
        states = passed_through(blocks, torch.zeros(2, 8, width), torch.ones(2, 8, dtype=torch.bool))
        self.embedding = nn.Embedding(num_tokens, width, padding_idx=0)
        self.blocks = nn.ModuleList(blocks)
        self.dropout = nn.Dropout(dropout)
        self.norm, self.head = nn.LayerNorm(states.shape[2]), nn.Linear(states.shape[2], num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, classes) for `tokens`, int64 (batch, length), in which 0 is padding."""
        mask = tokens != 0
        states = self.dropout(self.embedding(tokens))
        for block in self.blocks:
            states = block(states, mask)
        kept = mask.unsqueeze(2)
        mean = (self.norm(states) * kept).sum(dim=1) / kept.sum(dim=1)
        logits: Tensor = self.head(self.dropout(mean))
        return logits
