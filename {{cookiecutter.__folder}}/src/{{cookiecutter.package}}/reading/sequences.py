"""Sequences of unequal length: batches of like lengths, padded as tensors, and a GRU that heeds the padding.

A batch is as long as its longest sequence, so sequences of like length together waste little on padding.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import default_collate

from ..practices.loaders import EpochSampler, mix

MULTIPLE = 8  # of few sizes, memory of a GPU is reused; of many it is fragmented
POOL = 20  # batches that are sorted together: more pad less, but mix less


class BucketSampler(EpochSampler):
    """Yield training samples so that each batch holds like lengths: still a pure function of seed and epoch.

    The shuffled order is cut into pools, each is sorted by length and cut into batches, and the batches of all
    pools are shuffled. Ranks share each of them, so they partition the data and no rank waits for a longer batch.
    """

    def __init__(self, lengths: Tensor, *, batch_size: int, **arguments: Any) -> None:
        """Order by `lengths`, int64 (samples,), for batches of `batch_size` on each rank."""
        super().__init__(lengths, **arguments)
        self.lengths, self.size = lengths, batch_size * self.num_replicas

    def _order(self) -> list[int]:
        order = torch.tensor(super()._order())
        if not self.train:
            return order.tolist()
        pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in torch.split(order, POOL * self.size)]
        *batches, last = [batch for pool in pools for batch in torch.split(pool, self.size)]
        generator = torch.Generator().manual_seed(mix(self.seed, self.epoch, 1))
        shuffled = torch.randperm(len(batches), generator=generator).tolist()
        # The last batch, which may be a smaller one, stays last: batches are cut from this order by count.
        return torch.cat([*(batches[i] for i in shuffled), last]).tolist()


def pad(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch whose `tokens`, int64 (batch, length), are filled up with 0 to one length, a multiple of 8."""
    tokens = pad_sequence([sample["tokens"] for sample in samples], batch_first=True)
    tokens = nn.functional.pad(tokens, (0, -tokens.shape[1] % MULTIPLE))
    others = [{name: value for name, value in sample.items() if name != "tokens"} for sample in samples]
    return {"tokens": tokens, **default_collate(others)}


class PaddedGRU(nn.GRU):
    """A bidirectional GRU over padded sequences, each read within its own length, that can be exported to ONNX."""

    def __init__(self, input_size: int, width: int, layers: int = 1, dropout: float = 0.0) -> None:
        """Build `layers` with `width` units a direction, and `dropout` between them."""
        rate = dropout if layers > 1 else 0.0
        super().__init__(input_size, width, layers, batch_first=True, bidirectional=True, dropout=rate)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        """Return float (batch, length, 2 x width) for `states`, float (batch, length, input_size).

        The bool `mask` (batch, length) is false where padding follows; what is returned there means nothing.
        """
        lengths = mask.sum(dim=1)
        if torch.onnx.is_in_onnx_export():
            return self._onnx(states, lengths)
        there = lengths.cpu()  # allowed: packing takes lengths from the CPU alone
        packed = pack_padded_sequence(states, there, batch_first=True, enforce_sorted=False)
        result, _ = pad_packed_sequence(super().forward(packed)[0], batch_first=True, total_length=mask.shape[1])
        return result

    def _onnx(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Return the same by ONNX's own operator: traced, the steps would be unrolled to one fixed length."""
        attributes: dict[str, Any] = {
            "direction": "bidirectional",
            "hidden_size": self.hidden_size,
            "linear_before_reset": 1,
        }
        batch, length, _ = states.shape
        for layer in range(self.num_layers):
            inputs, hidden, input_bias, hidden_bias = (
                torch.stack([_gates(getattr(self, f"{name}_l{layer}{way}")) for way in ("", "_reverse")])
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            biases = torch.cat([input_bias, hidden_bias], dim=1)
            arguments = [states.transpose(0, 1), inputs, hidden, biases, lengths.int()]
            shape = (length, 2, batch, self.hidden_size)
            both = torch.onnx.ops.symbolic("GRU", arguments, attributes, dtype=states.dtype, shape=shape, version=14)
            states = both.permute(2, 0, 1, 3).flatten(2)
        return states


def _gates(weight: Tensor) -> Tensor:
    """Return `weight` with its three gates in ONNX's order, update before reset."""
    reset, update, new = weight.reshape(3, -1, *weight.shape[1:]).unbind(0)
    return torch.cat([update, reset, new])
