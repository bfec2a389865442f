"""Test mean IoU of the generated segmenter beside two plain baselines on the same split.

python bench/segmentation.py [further arguments of fit]

The baselines are background everywhere, and logistic regression of each pixel's class on its grey value.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cookiecutter.main import cookiecutter
from PIL import Image
from sklearn.linear_model import LogisticRegression

TEMPLATE = Path(__file__).parents[1]
NEEDED_IOU, ALLOWED_SECONDS, CORES = 0.75, 120, 2


def run(project: Path, *arguments: str) -> float:
    """Run a command of `project` silently, and return the seconds it took."""
    environment = os.environ | {"PYTHONPATH": "src"}
    start = time.perf_counter()
    words = [sys.executable, "-m", "digit_reader", *arguments]
    subprocess.run(words, cwd=project, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def pixels(folder: Path) -> tuple[Any, Any]:
    """Return the grey values, in 0 to 1 and shape (pixels, 1), and the labels of all images in `folder`."""
    images, masks = ([np.array(Image.open(p)) for p in sorted((folder / k).iterdir())] for k in ("images", "masks"))
    return np.stack(images).reshape(-1, 1) / 255, np.stack(masks).ravel()


def mean_iou(predicted: Any, labels: Any) -> float:
    """Return the IoU of each class that is in `predicted` or `labels`, averaged."""
    values = []
    for label in np.union1d(predicted, labels):
        both, either = (predicted == label) & (labels == label), (predicted == label) | (labels == label)
        values.append(both.sum() / either.sum())
    return float(np.mean(values))


def main() -> None:
    """Print all figures, and fail where the network's are not as promised."""
    os.environ.pop("OMP_NUM_THREADS", None)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as folder:
        answers = {"task": "semantic_segmentation", "logger": "csv"}
        project = Path(cookiecutter(str(TEMPLATE), no_input=True, output_dir=folder, extra_context=answers))
        before = os.times()
        seconds = run(project, "fit", *sys.argv[1:])
        after = os.times()
        run(project, "test")
        metrics = json.loads((project / "runs/latest/test_metrics.json").read_text())
        intensities, labels = pixels(project / "data/scenes/train")
        classifier = LogisticRegression(class_weight="balanced").fit(intensities[::20], labels[::20])
        plain = LogisticRegression().fit(intensities[::20], labels[::20])
        intensities, labels = pixels(project / "data/scenes/test")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"all background                  mean IoU {mean_iou(np.zeros_like(labels), labels):.3f}")
    print(f"logistic regression             mean IoU {mean_iou(plain.predict(intensities), labels):.3f}")
    print(f"logistic regression, balanced   mean IoU {mean_iou(classifier.predict(intensities), labels):.3f}")
    print(f"network                         mean IoU {metrics['test/mean_iou']:.3f}")
    worst = min((value, name) for name, value in metrics.items() if "/iou_" in name)
    print(f"network, worst class            {worst[1]} {worst[0]:.3f}")
    print(f"fit, export included            {seconds:.0f} s on {CORES} cores, {spent:.0f} s of one core")
    sys.exit(metrics["test/mean_iou"] < NEEDED_IOU or seconds > ALLOWED_SECONDS)


if __name__ == "__main__":
    main()
