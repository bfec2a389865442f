"""Mixup and CutMix mix images and labels alike, by torch's own random draws, and leave evaluation alone."""

import signal
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from {{ cookiecutter.package }}.practices.errors import UserError
from {{ cookiecutter.package }}.techniques.mixing import Mixing

from conftest_kill import STEPS, differences, forked_fit, latest, result

MIXUP = "--config=configs/mixup.yaml"


def mixed(model, batch: dict, **options) -> dict:
    """Return `batch` as a callback of `options` leaves it."""
    mixing, changed = Mixing(probability=1.0, **options), dict(batch)
    mixing.setup(None, model, "fit")
    mixing.on_train_batch_start(None, model, changed, 0)
    return changed


@pytest.fixture
def model(build):
    return build().model


@pytest.fixture
def batch() -> dict:
    """Return images of one colour each, so that every pixel tells where it is from, with a label for each."""
    colours = torch.arange(8) / 8
    return {"image": colours[:, None, None, None].expand(8, 3, 16, 16).clone(), "label": torch.arange(8) % 5}


def test_mixup_blends_whole_images_and_gives_labels_the_same_shares(model, batch: dict):
    torch.manual_seed(0)
    after = mixed(model, batch, mixup_alpha=1.0, cutmix_alpha=0.0)
    share = after["shares"][0].max()
    assert 0.5 < share < 1
    own = after["shares"][0, batch["label"][0]]
    expected = own * batch["image"] + (1 - own) * batch["image"].roll(1, 0)
    assert torch.allclose(after["image"], expected, atol=1e-6)
    one_hot = F.one_hot(batch["label"], len(model.class_names)).float()
    assert torch.allclose(after["shares"], own * one_hot + (1 - own) * one_hot.roll(1, 0), atol=1e-6)


def test_cutmix_pastes_a_piece_whose_area_is_the_labels_share(model, batch: dict):
    torch.manual_seed(0)
    after = mixed(model, batch, mixup_alpha=0.0, cutmix_alpha=1.0)
    pasted = after["image"] == batch["image"].roll(1, 0)
    assert (pasted | (after["image"] == batch["image"])).all(), "every pixel is of one image or the other"
    area = pasted[0, 0].float().mean()
    assert 0 < area < 1
    assert after["shares"][0, batch["label"][-1]] == pytest.approx(area.item(), abs=1e-5)


def test_accuracy_counts_the_class_with_the_larger_share(model, batch: dict):
    after = mixed(model, batch, mixup_alpha=1.0)
    assert torch.equal(after["label"], after["shares"].argmax(1))
    assert after["label"].dtype is torch.int64


@pytest.mark.parametrize("loss", ["cross_entropy", "focal"])
def test_the_loss_is_that_of_both_labels_by_their_shares(build, loss: str):
    cli = build(f"--model.loss={loss}", "--model.label_smoothing=0")
    sample = mixed(cli.model, next(iter(cli.datamodule.loader("train"))), mixup_alpha=1.0)
    cli.model.eval()
    logits = cli.model(sample["image"])
    expected = 0.0
    for label in range(len(cli.model.class_names)):
        alone = {"label": torch.full_like(sample["label"], label)}
        per_sample = torch.stack([cli.model._train_loss({"label": alone["label"][:1]}, row[None]) for row in logits])
        expected += (per_sample * sample["shares"][:, label]).mean()
    assert cli.model.training_step(sample, 0).item() == pytest.approx(expected.item(), rel=1e-5)


def test_training_is_mixed_and_validation_is_not(build):
    cli = build(MIXUP, "--trainer.max_epochs=1", "--trainer.limit_train_batches=8", "--trainer.limit_val_batches=2")
    seen: dict[str, list[bool]] = {"train": [], "val": []}
    model = cli.model
    step = model._step
    model._step = lambda batch, split: (seen[split].append("shares" in batch), step(batch, split))[1]
    cli.trainer.fit(model, datamodule=cli.datamodule)
    assert {True, False} == set(seen["train"]), "half of the batches are mixed"
    assert set(seen["val"]) == {False}


def test_one_seed_mixes_alike_and_a_killed_run_ends_as_one_that_never_stopped(monkeypatch, workspace: Path):
    fit = forked_fit(monkeypatch, workspace)
    runs = []
    for _ in range(2):
        code, text = fit(STEPS, MIXUP)
        assert code == 0, text
        runs.append(result(latest()))
    assert not differences(*runs), "two runs with one seed must be equal"
    assert fit(STEPS, MIXUP, at=("on_train_batch_end", 6))[0] == -signal.SIGKILL
    code, text = fit("--resume=latest")
    assert code == 0, text
    assert not differences(runs[0], result(latest()))


def test_what_mixes_nothing_is_refused():
    with pytest.raises(UserError, match="both 0"):
        Mixing(mixup_alpha=0.0, cutmix_alpha=0.0)
    with pytest.raises(UserError, match="probability of Mixing is 2"):
        Mixing(probability=2.0)
