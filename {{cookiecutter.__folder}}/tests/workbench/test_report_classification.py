"""A classifier's numbers in the report, beside ones computed in another way."""

import csv
from pathlib import Path

import numpy as np
import torch

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.workbench.report import classification, verdict

from conftest import PLAIN


def drawn(classes: int = 4, size: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities that are too sure, and labels; the last class never comes."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(classes - 1, (size,), generator=generator)
    logits = torch.randn(size, classes, generator=generator) + torch.nn.functional.one_hot(labels, classes)
    return (2 * logits).softmax(1), labels


def test_the_table_is_that_of_its_definitions_and_a_class_without_samples_has_no_score():
    probabilities, labels = drawn()
    predicted, truth = probabilities.numpy().argmax(1), labels.numpy()
    table = classification.per_class(probabilities.argmax(1), labels, list("abcd"))
    rows = {name: values for name, *values in table.rows}
    for number, name in enumerate("abc"):
        right = ((predicted == number) & (truth == number)).sum()
        precision, recall = right / (predicted == number).sum(), right / (truth == number).sum()
        expected = [precision, recall, 2 * precision * recall / (precision + recall), (truth == number).sum()]
        np.testing.assert_allclose(rows[name], expected, rtol=1e-5)
    assert np.isnan(rows["d"][:3]).all() and rows["d"][3] == 0
    many = classification.per_class(labels, labels, [str(number) for number in range(60)])
    assert len(many.rows) == 50 and "the 10 classes" in many.caption and "Left out" not in table.caption
    assert list(rows)[-1] == "d", "the lowest F1 first, what has none last"


def test_the_reliability_diagram_is_that_of_its_definition(tmp_path: Path):
    probabilities, labels = drawn()
    confidence = probabilities.numpy().max(1)
    right = probabilities.numpy().argmax(1) == labels.numpy()
    expected = []
    for low in np.arange(10) / 10:
        inside = (confidence >= low) & (confidence < low + 0.1)
        if inside.any():
            expected.append((confidence[inside].mean(), right[inside].mean(), inside.sum()))
    found = classification.reliability(probabilities, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    ece = sum(abs(c - a) * n for c, a, n in expected) / len(labels)
    assert f"ECE {ece:.3f}" in classification.calibration(probabilities, labels, tmp_path).caption
    assert "surer than right" in classification.calibration(probabilities, labels, tmp_path).caption


def test_the_confusion_matrix_shows_the_classes_with_most_errors(tmp_path: Path, monkeypatch):
    seen = {}
    monkeypatch.setattr(classification, "draw", lambda file, paint, *rest: seen.update(paint=paint))
    labels = torch.arange(30).repeat(3)
    predicted = labels.clone()
    predicted[labels == 29] = 7
    classification.confusion(predicted, labels, [f"class {i}" for i in range(30)], tmp_path)
    axes = Recorder()
    seen["paint"](axes)
    assert len(axes.ticks) == classification.CLASSES and {"class 7", "class 29"} <= set(axes.ticks)
    row, column = axes.ticks.index("class 29"), axes.ticks.index("class 7")
    assert axes.texts[row, column] == 3 and (row, row) not in axes.texts


class Recorder:
    """Axes that remember what is written on them."""

    def __init__(self):
        self.texts, self.ticks = {}, []

    def text(self, column, row, value, **style):
        self.texts[row, column] = value

    def set_yticks(self, places, labels):
        self.ticks = labels

    def imshow(self, *arguments, **options):
        pass

    grid = set = set_xticks = imshow


def test_a_real_run_on_one_batch_is_seen_to_overfit(workspace: Path):
    one = ("--trainer.overfit_batches=1", "--trainer.limit_val_batches=2", "--trainer.max_epochs=20")
    main(["fit", *PLAIN, *one, "--model.schedule=constant", "--monitor.patience=null", "--export_onnx=false"])
    assert verdict.judge(verdict.read(Path("runs/latest"))).kind == "overfitting"


def test_what_the_page_says_is_what_training_measured(workspace: Path, monkeypatch):
    found = {}
    original = classification.confusion
    monkeypatch.setattr(
        classification, "confusion", lambda *given: original(*given) if found.update(pair=given[:2]) is None else None
    )
    main(["fit", *PLAIN, "--trainer.max_epochs=2", "--trainer.limit_train_batches=20", "--export_onnx=false"])
    with Path("runs/latest/metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    best = min(rows, key=lambda row: float(row["val/loss"]))
    predicted, labels = found["pair"]
    assert abs(float((predicted == labels).float().mean()) - float(best["val/accuracy"])) < 1e-6


def test_every_sample_of_the_galleries_is_as_its_note_says(tmp_path: Path):
    picture = torch.rand(3, 8, 8)
    sample = {"image": picture, "path": "folder/one.png"}
    shown = classification.gallery("Most wrong", "", [sample], ["a, called b at 90%"], tmp_path).pictures[0]
    assert shown.caption == "a, called b at 90% (one.png)" and shown.file == tmp_path / "most-wrong-00.png"
    texts = classification.gallery("Least sure", "", [{"text": "x" * 900}], ["a"], tmp_path)
    assert texts.table.rows == [["x" * 300, "a"]] and not texts.pictures
