"""Drawing with matplotlib: one chart a file, narrow enough for a phone, and nothing global left changed."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .page import Picture
from .verdict import Row, curve

BLUE, ORANGE, QUIET = "#2f6db5", "#d5762b", "#999999"
COLOURS = (BLUE, ORANGE, "#3f9463", "#a2559c", "#7d7d3a", "#c0504d", "#4bacc6", "#6b5b95")
STYLE: dict[Any, Any] = {
    "axes.edgecolor": QUIET,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "font.size": 9,
    "grid.color": "#e6e6e6",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.parse_math": False,  # a class may be called $x
}
Curves = Mapping[str, dict[int, float]]
CAPTIONS = {
    "loss": "Val rises while train falls: overfitting. Both high or falling: underfitting. Jumps: too high a rate.",
    "learning rate": "The schedule as it ran. A jump of the loss at the peak says that the peak is too high.",
    "gradient norm": "Of all gradients, before clipping. Growth or spikes come before a loss that is no number.",
}


def clean(name: object, length: int = 16) -> str:
    """Return `name` as it can stand beside an axis: printable, on one line, not long."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    return text if len(text) <= length else text[: length - 1] + "…"


def draw(file: Path, paint: Callable[[Any], None], alt: str, caption: str, height: float = 2.9) -> Picture:
    """Let `paint` draw on axes 4.4 inches wide and `height` high, and write them to `file`."""
    # Not pyplot: it keeps figures and chooses a backend for the whole process.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    file.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(4.4, height), dpi=200, layout="constrained", facecolor="white")
        canvas: Any = FigureCanvasAgg(figure)
        paint(figure.add_subplot())
        canvas.print_png(file, metadata={"Software": None})  # savefig would draw it twice
    return Picture(file, alt, caption)


def lines(file: Path, curves: Curves, x: str, y: str, caption: str, best: int | None = None) -> Picture:
    """Draw `curves`, by their labels, over `x`, with a mark at the best one."""

    def paint(axes: Any) -> None:
        for number, (label, values) in enumerate(curves.items()):
            style = {"color": COLOURS[number % len(COLOURS)], "marker": "o" if len(values) < 15 else None}
            axes.plot(list(values), list(values.values()), label=clean(label, 40), markersize=3, **style)
        if best is not None:
            axes.axvline(best, color=QUIET, linestyle=":", label=f"best, {x} {best}")
        axes.set(xlabel=x, ylabel=y)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(axes.get_lines()) > 1:
            axes.legend()

    return draw(file, paint, f"{y} over {x}", caption)


def learning(rows: Sequence[Row], folder: Path, monitor: str, best: int | None) -> list[Picture]:
    """Return curves of the loss, the monitored metric, the learning rate and the gradients' norm, where there are."""
    pictures: list[Picture] = []
    columns = list(rows[0]) if rows else []
    chosen = list(dict.fromkeys(["loss", *(n.split("/", 1)[1] for n in (monitor, *columns) if n.startswith("val/"))]))
    for name in chosen if len(chosen) <= 4 else chosen[:2]:  # one of each class would hide the others
        if curves := {s: values for s in ("train", "val") if (values := curve(rows, f"{s}/{name}"))}:
            caption = CAPTIONS.get(name, f"Monitored: {monitor}." if name == monitor[4:] else "")
            pictures.append(lines(folder / f"curve-{len(pictures)}.png", curves, "epoch", name, caption, best))
    rate = next((name for name in columns if name.startswith("lr-")), "")
    for name, title in ((rate, "learning rate"), ("train/gradient_norm", "gradient norm")):
        if values := curve(rows, name, "step"):
            file = f"{title.replace(' ', '-')}.png"
            pictures.append(lines(folder / file, {title: values}, "step", title, CAPTIONS[title]))
    return pictures
