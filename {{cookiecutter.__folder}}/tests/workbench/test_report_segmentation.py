"""A segmenter's numbers in the report, beside ones computed in another way."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.reading.masks import IGNORED
from {{ cookiecutter.package }}.training import best_module, open_run
from {{ cookiecutter.package }}.workbench.report import segmentation

from conftest import PLAIN


def test_iou_is_that_of_its_definition_and_ignored_pixels_do_not_count(build):
    cli = build()
    module, classes = cli.model, len(cli.model.class_names)
    data = cli.datamodule.dataset("val")
    masks = {data[i]["name"]: data[i]["mask"] for i in (0, 1)}
    for name, _, (mask, found), matrix in segmentation.compared(cli, module, [0, 1]):
        torch.testing.assert_close(mask, masks[name])
        truth, labels = mask.numpy(), found.numpy()
        counted = truth != IGNORED
        for label in range(classes):
            both = ((truth == label) & (labels == label) & counted).sum()
            either = (((truth == label) | (labels == label)) & counted).sum()
            expected = both / either if either else np.nan
            np.testing.assert_allclose(float(segmentation.iou(matrix)[label]), expected, rtol=1e-6)


def test_a_class_that_is_nowhere_has_no_score():
    matrix = torch.tensor([[5, 1, 0], [2, 4, 0], [0, 0, 0]])
    *classes, mean = segmentation.per_class(matrix, ["a", "b", "c"]).rows
    assert classes[0][1:] == pytest.approx([5 / 8, 5 / 7, 5 / 6, 0.5])
    assert np.isnan(classes[2][1]) and mean[1] == pytest.approx((5 / 8 + 4 / 7) / 2)


def test_a_strip_is_image_truth_and_prediction(tmp_path: Path):
    image, mask = torch.full((3, 4, 5), 0.5), torch.zeros(4, 5, dtype=torch.int64)
    found = mask.clone()
    found[0, 0] = 1
    pixels = np.asarray(Image.open(segmentation.strip(image, [mask, found], tmp_path / "strip.png", "").file))
    assert pixels.shape == (4, 3 * 6 - 1, 3)
    assert (pixels[:, :5] == pixels[:, 6:11]).all() and (pixels[0, 12] != pixels[0, 0]).any()


def test_what_the_page_says_is_what_training_measured(workspace: Path):
    short = ("--trainer.max_epochs=2", "--trainer.limit_train_batches=10", "--export_onnx=false")
    main(["fit", *PLAIN, *short])
    with Path("runs/latest/metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/mean_iou"]]
    best = max(float(row["val/mean_iou"]) for row in rows)
    _, cli, run = open_run([])
    table = segmentation.sections(cli, best_module(cli, run), run / "report")[0].table
    assert table.rows[-1][1] == pytest.approx(best, abs=1e-5)
