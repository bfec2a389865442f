"""Test R2 of the generated tabular regressor beside ridge regression on the same split.

python bench/tabular.py [--seeds 5] [further arguments of fit]
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from cookiecutter.main import cookiecutter
from sklearn.compose import make_column_transformer
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TEMPLATE = Path(__file__).parents[1]
ALLOWED_GAP = 0.03


def run(project: Path, *arguments: str) -> None:
    """Run a command of `project`, on one core and silently."""
    environment = os.environ | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "digit_reader", *arguments]
    subprocess.run(words, cwd=project, env=environment, check=True, capture_output=True)


def trained(project: Path, seed: int, arguments: list[str]) -> dict[str, float]:
    """Return the test metrics of the default configuration with `seed`, and the seconds of its fit."""
    start = time.perf_counter()
    run(project, "fit", f"--seed_everything={seed}", "--export_onnx=false", *arguments)
    seconds = time.perf_counter() - start
    run(project, "test")
    metrics: dict[str, float] = json.loads((project / "runs/latest/test_metrics.json").read_text())
    return metrics | {"seconds": seconds}


def ridge(project: Path) -> float:
    """Return the test R2 of ridge regression, its penalty chosen by cross-validation on the training split."""
    tables = {}
    for split in ("train", "test"):
        with (project / f"data/diabetes/{split}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in rows[0] if name not in ("patient", "progression")]
        cells = np.array([[float(row[name]) for name in names] for row in rows])
        tables[split] = cells, np.array([float(row["progression"]) for row in rows])
    sex = [names.index("sex")]
    others = [i for i in range(len(names)) if i not in sex]
    columns = make_column_transformer((StandardScaler(), others), (OneHotEncoder(), sex))
    model = make_pipeline(columns, RidgeCV(np.logspace(-2, 3, 50))).fit(*tables["train"])
    return float(r2_score(tables["test"][1], model.predict(tables["test"][0])))


def main() -> None:
    """Print both figures, and fail when the network's is more than the allowed gap below."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        answers = {"task": "tabular_regression", "logger": "csv"}
        project = Path(cookiecutter(str(TEMPLATE), no_input=True, output_dir=folder, extra_context=answers))
        runs = [trained(project, seed, rest) for seed in range(options.seeds)]
        baseline = ridge(project)
    scores = [metrics["test/r2"] for metrics in runs]
    mean = statistics.fmean(scores)
    print(f"ridge regression   R2 {baseline:.3f}")
    print(f"network            R2 {mean:.3f} (mean of {', '.join(f'{score:.3f}' for score in scores)})")
    for name in ("interval_coverage", "interval_width", "mae"):
        print(f"network            {name} {statistics.fmean(metrics[f'test/{name}'] for metrics in runs):.3f}")
    print(f"network            {statistics.median(metrics['seconds'] for metrics in runs):.0f} s a fit, one core")
    print(f"gap {baseline - mean:+.3f}, allowed {ALLOWED_GAP}")
    sys.exit(baseline - mean > ALLOWED_GAP)


if __name__ == "__main__":
    main()
