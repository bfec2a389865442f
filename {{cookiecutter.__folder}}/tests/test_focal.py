"""The focal loss against its definition, and that a classifier is trained by it but measured as ever."""

import pytest
import torch
from torch.nn import functional as F

from {{ cookiecutter.package }}.practices.focal import focal_loss


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_focal_loss_is_cross_entropy_without_focus_and_heeds_easy_samples_less_with_it(smoothing: float):
    torch.manual_seed(0)
    logits, labels = torch.randn(16, 5, dtype=torch.float64) * 3, torch.randint(5, (16,))
    shares = torch.rand(16, 5, dtype=torch.float64).softmax(1)
    for targets in (labels, shares):
        expected = F.cross_entropy(logits, targets, label_smoothing=smoothing)
        loss = focal_loss(logits, targets, gamma=0.0, label_smoothing=smoothing)
        assert loss.item() == pytest.approx(expected.item())
    one_hot = F.one_hot(labels, 5).double()
    spread = (1 - smoothing) * one_hot + smoothing / 5
    p = logits.softmax(1)
    expected = -(spread * (1 - p) ** 2 * p.log()).sum(1).mean()
    for targets in (labels, one_hot):
        assert focal_loss(logits, targets, label_smoothing=smoothing).item() == pytest.approx(expected.item())


def test_each_of_many_classes_counts():
    assert focal_loss(torch.randn(4, 300), torch.full((4,), 255)) > 0, "class 255 is a class like the others"


def test_the_focal_loss_is_trained_by_and_the_cross_entropy_measured(build):
    cli = build("--model.loss=focal", "--model.label_smoothing=0")
    batch = next(iter(cli.datamodule.loader("train")))
    cli.model.eval()
    logits = cli.model(**cli.model.example_inputs(batch))
    for split, expected in (("train", focal_loss), ("val", F.cross_entropy)):
        loss = expected(logits, batch["label"]).item()
        assert cli.model._step(batch, split).item() == pytest.approx(loss, rel=1e-5), split
