"""Accuracy and macro F1 of the generated text classifier beside two plain baselines; padding with and without buckets.

Further arguments are those of fit: python bench/text.py --trainer.max_epochs 2
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cookiecutter.main import cookiecutter
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.pipeline import make_pipeline

TEMPLATE = Path(__file__).parents[1]
ACCURACY, SECONDS = 0.72, 120

# Run in the project: padding share and seconds a step for surnames, and for texts of 10 to 250 characters.
BUCKETS = """
import json, random, statistics, time, torch
from digit_reader.training import DEFAULT, TrainingCLI
from digit_reader.reading.tables import write_tables
from pathlib import Path
draw = random.Random(0)
row = lambda: {"text": "".join(draw.choices("abcde ", k=draw.randint(10, 250))), "label": draw.choice("xy")}
if not Path("data/texts").exists():
    write_tables(Path("data/texts"), {"train": [row() for _ in range(4000)], "val": [row() for _ in range(50)]})
columns = {"surnames": ("surname", "language"), "texts": ("text", "label")}
for name, (text, label) in columns.items():
    loaders = {}
    for bucketing in ("false", "true"):
        cli = TrainingCLI([f"--data.root=data/{name}", f"--data.text_column={text}", f"--data.label_column={label}",
            f"--data.bucketing={bucketing}", "--trainer.accelerator=cpu"], DEFAULT)
        cli.model.log = cli.model.log_dict = lambda *_, **__: None
        loaders[bucketing] = cli.model, cli.datamodule.loader("train")
    padding = {}
    for bucketing, (_, loader) in loaders.items():
        cells = [(int((b["tokens"] == 0).sum()), b["tokens"].numel()) for b in loader]
        padding[bucketing] = sum(p for p, _ in cells) / sum(n for _, n in cells)
    seconds = {"false": [], "true": []}
    for _ in range(5):  # side by side, so that a busy machine is unfair to neither
        for bucketing, (model, loader) in loaders.items():
            batches = [b for _, b in zip(range(30), loader)]
            start = time.perf_counter()
            for batch in batches:
                model.training_step(batch, 0).backward()
            seconds[bucketing].append((time.perf_counter() - start) / len(batches))
    print(json.dumps([name, padding, {k: statistics.median(v) for k, v in seconds.items()}]))
"""


def run(project: Path, *words: str) -> str:
    """Run python in `project` and return what it prints."""
    environment = os.environ | {"PYTHONPATH": f"src{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run([sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr[-3000:])
    return result.stdout


def table(project: Path, split: str) -> tuple[list[str], list[str]]:
    """Return the surnames and languages of `split`."""
    with (project / f"data/surnames/{split}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["surname"] for row in rows], [row["language"] for row in rows]


def main() -> None:
    """Print all figures, and fail when the accuracy is too low or the training too slow."""
    with tempfile.TemporaryDirectory() as folder:
        answers = {"task": "text_classification", "logger": "csv"}
        project = Path(cookiecutter(str(TEMPLATE), no_input=True, output_dir=folder, extra_context=answers))
        start = time.perf_counter()
        run(project, "-m", "digit_reader", "fit", *sys.argv[1:])
        seconds = time.perf_counter() - start
        run(project, "-m", "digit_reader", "test")
        metrics = json.loads((project / "runs/latest/test_metrics.json").read_text())
        (texts, labels), (test_texts, test_labels) = table(project, "train"), table(project, "test")
        measured = run(project, "-c", BUCKETS)
    most = Counter(labels).most_common(1)[0][0]
    ngrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True)
    logistic = make_pipeline(ngrams, LogisticRegression(C=10, max_iter=1000)).fit(texts, labels)
    print(f"surnames: {len(texts)} to train with, {len(test_texts)} to test, {len(set(labels))} languages")
    for name, predicted in (
        ("majority", [most] * len(test_texts)),
        ("logistic regression on 1- to 4-grams", list(logistic.predict(test_texts))),
    ):
        accuracy, macro_f1 = accuracy_score(test_labels, predicted), f1_score(test_labels, predicted, average="macro")
        print(f"{name:<40}accuracy {accuracy:.3f}  macro F1 {macro_f1:.3f}")
    accuracy, macro_f1 = metrics["test/accuracy"], metrics["test/macro_f1"]
    print(f"{'default network':<40}accuracy {accuracy:.3f}  macro F1 {macro_f1:.3f}  in {seconds:.0f} s with export")
    for line in measured.splitlines():
        if line.startswith("["):
            name, padding, step = json.loads(line)
            print(
                f"buckets, {name:<10}padding {padding['false']:.1%} without, {padding['true']:.1%} with; "
                f"step {1e3 * step['false']:.1f} ms without, {1e3 * step['true']:.1f} ms with, "
                f"ratio {step['false'] / step['true']:.2f}"
            )
    sys.exit(accuracy < ACCURACY or seconds > SECONDS)


if __name__ == "__main__":
    main()
