"""What is counted by class stays cheap, and the same, where repeatable kernels are asked for."""

from collections.abc import Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics.functional.classification import multiclass_confusion_matrix

from {{ cookiecutter.package }}.practices.counting import native_counts


class Largest(TorchDispatchMode):
    """Remember the elements of the largest tensor that was made."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.fixture
def deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def test_counts_are_the_same_and_need_no_row_a_sample(deterministic):
    generator = torch.Generator().manual_seed(0)
    predicted, labels = torch.randint(0, 50, (2, 1000), generator=generator)
    with native_counts(), Largest() as look:
        counts = multiclass_confusion_matrix(predicted, labels, 50)
    assert look.elements <= 50 * 50
    assert torch.equal(counts, multiclass_confusion_matrix(predicted, labels, 50))


def test_what_was_asked_for_holds_again_afterwards(deterministic):
    with pytest.raises(ZeroDivisionError), native_counts():
        raise ZeroDivisionError
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
