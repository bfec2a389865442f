"""A classifier's pictures: what it confuses, whether its probabilities hold, which samples it knows least."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional import classification as metrics

from ...practices.counting import native_counts
from .charts import BLUE, QUIET, clean, draw
from .evaluate import outputs, photo, spread, training_batch
from .page import Picture, Section, Table

LIMIT, SHOWN, CLASSES, BINS, ROWS = 2000, 12, 20, 10, 50
PER_CLASS = "Lowest F1 first. Precision: share of what was called so that is; recall: of what is, that was called so."
BATCH = "The first samples of the first epoch, as the network saw them. Each label must still be true."


def sections(cli: Any, module: Any, folder: Path) -> list[Section]:
    """Return what there is to see of a module whose forward gives logits (batch, classes)."""
    names, data = module.class_names, cli.datamodule.dataset("val")
    indices = spread(len(data), LIMIT)
    found = [(logits.softmax(1), batch["label"]) for batch, logits in outputs(cli, module, indices)]
    probabilities, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
    top, predicted = probabilities.topk(2).values, probabilities.argmax(1)
    true = probabilities.gather(1, labels[:, None])[:, 0]
    wrong = [i for i in true.argsort(stable=True).tolist() if predicted[i] != labels[i]][:SHOWN]
    unsure = (top[:, 0] - top[:, 1]).argsort(stable=True)[:SHOWN].tolist()
    looked, table = f"{len(indices)} of {len(data)} validation samples.", per_class(predicted, labels, names)

    def shown(title: str, words: str, places: list[int]) -> Section:
        samples = [data[indices[i]] for i in places]
        notes = [f"{names[labels[i]]}, called {names[predicted[i]]} at {top[i, 0]:.0%}" for i in places]
        return gallery(title, words if places else "There is none.", samples, notes, folder)

    batch = training_batch(cli.datamodule, SHOWN)
    trained = [{key: value[i] for key, value in batch.items()} for i in range(len(batch["label"]))]
    return [
        Section("Classes", looked, table, [confusion(predicted, labels, names, folder)]),
        Section("Calibration", looked, pictures=[calibration(probabilities, labels, folder)]),
        shown("Most wrong", "The surest of the other class first: wrong labels, or kinds that training lacks.", wrong),
        shown("Least sure", "Between two classes, right or wrong. More samples of their kind teach most.", unsure),
        gallery("Training batch", BATCH, trained, [names[label] for label in batch["label"]], folder),
    ]


def per_class(predicted: Tensor, labels: Tensor, names: list[str]) -> Table:
    """Return precision, recall, F1 and number of each class, the lowest F1 first; a class without samples has none."""
    functions = (metrics.multiclass_precision, metrics.multiclass_recall, metrics.multiclass_f1_score)
    with native_counts():
        columns = [function(predicted, labels, len(names), average="none").tolist() for function in functions]
    counts = labels.bincount(minlength=len(names)).tolist()
    rows = [[n, *v, c] if c else [n, *[float("nan")] * 3, 0] for n, *v, c in zip(names, *columns, counts, strict=True)]
    rows.sort(key=lambda row: (row[4] == 0, row[3]))
    left = f" Left out: the {len(rows) - ROWS:,} classes after these." if len(rows) > ROWS else ""
    return Table(["class", "precision", "recall", "F1", "samples"], rows[:ROWS], PER_CLASS + left)


def confusion(predicted: Tensor, labels: Tensor, names: list[str], folder: Path) -> Picture:
    """Draw counts by true and predicted class; where there are many, of the classes with the most errors."""
    with native_counts():
        matrix = metrics.multiclass_confusion_matrix(predicted, labels, len(names))
    errors = matrix.sum(0) + matrix.sum(1) - 2 * matrix.diag()
    kept = errors.argsort(descending=True, stable=True)[:CLASSES].sort().values
    counts = matrix[kept][:, kept]
    shares = counts / matrix[kept].sum(1, keepdim=True).clamp(min=1)
    ticks = [clean(names[i]) for i in kept]

    def paint(axes: Any) -> None:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.grid(False)
        for row, column in counts.nonzero().tolist():
            style = {"ha": "center", "va": "center", "fontsize": 9 if len(kept) < 13 else 6}
            colour = "white" if shares[row, column] > 0.5 else "#222222"
            axes.text(column, row, int(counts[row, column]), color=colour, **style)
        axes.set_xticks(range(len(kept)), ticks, rotation=90)
        axes.set_yticks(range(len(kept)), ticks)
        axes.set(xlabel="predicted", ylabel="true")

    caption = f"{len(kept)} of {len(names)} classes. A row is a true class; what is off the diagonal was confused."
    return draw(folder / "confusion.png", paint, "confusion matrix", caption, 4.3)


def reliability(probabilities: Tensor, labels: Tensor) -> list[tuple[float, float, int]]:
    """Return mean confidence, accuracy and number of the samples in each of BINS equal bins of the confidence."""
    confidence, predicted = probabilities.max(1)
    places = (confidence * BINS).long().clamp(max=BINS - 1)
    bins = [places == place for place in sorted(set(places.tolist()))]
    return [(float(confidence[i].mean()), float((predicted == labels)[i].float().mean()), int(i.sum())) for i in bins]


def calibration(probabilities: Tensor, labels: Tensor, folder: Path) -> Picture:
    """Draw accuracy over confidence. Source: Guo et al., On Calibration of Modern Neural Networks, 2017."""
    confidence, accuracy, counts = zip(*reliability(probabilities, labels), strict=True)
    ece = float(metrics.multiclass_calibration_error(probabilities, labels, probabilities.shape[1], n_bins=BINS))
    gap = float(probabilities.max(1).values.mean() - (probabilities.argmax(1) == labels).float().mean())

    def paint(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=QUIET, linestyle=":", label="calibrated")
        axes.plot(confidence, accuracy, marker="o", markersize=4, color=BLUE, label="measured")
        for x, y, count in zip(confidence, accuracy, counts, strict=True):
            axes.annotate(str(count), (x, y), (4, -9), textcoords="offset points", fontsize=7)
        axes.set(xlim=(0, 1.05), ylim=(0, 1.05), xlabel="confidence", ylabel="accuracy")
        axes.legend(loc="upper left")

    side = "below the line: surer than right" if gap > 0 else "above the line: right more often than sure"
    caption = f"ECE {ece:.3f}: mean distance from the line over {BINS} bins; numbers are samples. On the whole {side}."
    return draw(folder / "calibration.png", paint, "reliability diagram", caption, 3.6)


def gallery(title: str, words: str, samples: list[Any], notes: list[str], folder: Path) -> Section:
    """Return `samples`, each with its note, as pictures, or as texts where they have no image."""
    if not samples or "image" not in samples[0]:
        rows = [[str(sample["text"])[:300], note] for sample, note in zip(samples, notes, strict=True)]
        return Section(title, words, Table(["text", "class"], rows, prose=True))
    name, pictures = title.lower().replace(" ", "-"), []
    for number, (sample, note) in enumerate(zip(samples, notes, strict=True)):
        caption = f"{note} ({Path(sample['path']).name})"
        pictures.append(photo(sample["image"], folder / f"{name}-{number:02d}.png", caption))
    return Section(title, words, pictures=pictures, kind="photos")
