"""MODEL_CARD.md beside an exported file: what it is, what it came from, how good it is, and what only people know.

The sections that people write, and those that they add, are kept when the card is written again; a new run's card
takes over what the newest card before it says.
"""

import hashlib
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import onnxruntime

from ..practices.errors import UserError
from ..practices.export import TOLERANCE, compare
from ..record import best, read, tested
from ..runs import RUNS
from ..training import best_module

NAME, OPEN, SOURCE = "MODEL_CARD.md", "TODO(you): card: ", "Source and licence of the data"
HUMAN = {
    "Intended use": "what the model is for, and who uses it",
    "Limits": "what it must not be used for, and where it is known to fail",
    SOURCE: "who collected the data, and what its licence and the people in it allow",
}


def after_export(cli: Any, run: Path, path: Path) -> None:
    """Write the card beside the exported file at `path`."""
    card, facts = path.with_name(NAME), describe(cli, run, path)
    earlier = sorted(RUNS.glob(f"[!l]*/{NAME}"), reverse=True)
    cards = [split(one.read_text(encoding="utf-8") if one.is_file() else "") for one in (card, *earlier)]
    for title, wanted in HUMAN.items():
        # Where data comes from is true of that data alone.
        told = [one[title] for one in cards if title in one and (title != SOURCE or one.get("Data") == facts["Data"])]
        # A mark that is left beside what was written says that there is more to say.
        facts[title] = next((text for text in told if text != OPEN + wanted), OPEN + wanted)
    facts[SOURCE] = demo_source(cli.datamodule) or facts[SOURCE]
    added = {title: text for title, text in next(filter(None, cards), {}).items() if title not in facts}
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in {**facts, **added}.items())
    card.write_text(f"# Model card of {path.name}\n\n{body}\n", encoding="utf-8")
    print(f"Described: {card}")


def after_test(cli: Any, run: Path) -> None:
    """Write what was measured into the card of the run's own export."""
    if (run / "model.onnx").is_file():
        after_export(cli, run, run / "model.onnx")


def after_predict(cli: Any, run: Path) -> None:
    """Run the exported file on what was just predicted, if it is no split, and leave that in tried.json."""
    own = [value for name, value in cli.config.data.init_args.items() if name.startswith("predict_") and value]
    path = run / "model.onnx"
    if not own or not path.is_file():
        return
    module, batch = best_module(cli, run).eval(), next(iter(cli.datamodule.predict_dataloader()))
    inputs = module.example_inputs(batch)
    for one in onnxruntime.InferenceSession(path).get_inputs():  # a corner, where the file has a fixed size
        inputs[one.name] = inputs[one.name][tuple(slice(n if isinstance(n, int) else None) for n in one.shape)]
    difference = compare(module, path, inputs)
    if not difference <= TOLERANCE:
        what = f"{path} differs from torch by {difference:.0e} on {own[0]} (allowed: {TOLERANCE:.0e})"
        raise UserError(f"{what}, so it does not count as tried; export it anew.")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = {"source": str(own[0]), "model": path.name, "sha256": sha256, "difference": difference}
    (run / "tried.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"Tried: {path} on {own[0]}, differs from torch by {difference:.0e}")


def split(text: str) -> dict[str, str]:
    """Return the sections of a card's text by title."""
    return {title: body.strip() for title, body in re.findall(r"(?ms)^## (.+?)\n(.*?)(?=^## |\Z)", text)}


def describe(cli: Any, run: Path, path: Path) -> dict[str, str]:
    """Return the sections of card.md with what the run's record and the file tell; those of people are empty."""
    record, module = read(run), best_module(cli, run).eval()
    config, data, record = record["config"], record["data"], {"epochs": 0, "steps": 0, **record}
    model, init = {"learning_rate": "its own", **config["model"]["init_args"]}, config["data"]["init_args"]
    facts = {
        "size": path.stat().st_size / 1e6,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "difference": compare(module, path, module.example_inputs(cli.datamodule.sample_batch())),
        "network": {"class_path": "its own network", "init_args": "", **model.get("network", {})},
        "root": init.get("root"),
        "batch_size": init.get("batch_size"),
        "results": results(run, config, data["samples"]),
        "samples": ", ".join(f"{split} {count:,}" for split, count in data["samples"].items()),
        "classes": ", ".join(data.get("class_names", ["none"])),
        "commit": record["git"]["commit"] or "none, as there is no repository",
        "changed": ", ".join(record["git"]["changed"]) or "nothing",
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version),
        "gpus": ", ".join(record["hardware"]["gpus"]) or "none",
    }
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return split(text.format(path=path, run=run, record=record, config=config, data=data, model=model, **facts))


def results(run: Path, config: dict[str, Any], samples: dict[str, int]) -> str:
    """Return the rows of the metrics of both splits; a share of samples has an interval, other metrics need repeats."""
    measured, monitor = tested(run), config["monitor"]
    found = {k: v for k, v in best(run, monitor["metric"], monitor["mode"]).items() if k.startswith("val/")} | measured
    rows = [] if measured else ["| test | not measured; the command `test` measures it and writes it here | | |"]
    for name, value in sorted(found.items()):
        split, n = name.split("/")[0], samples.get(name.split("/")[0], 0)
        part = "part of " if config["trainer"].get(f"limit_{split}_batches") is not None else ""
        share = name.endswith("accuracy") and n and not part
        interval = "{:.4g} to {:.4g}".format(*wilson(value, n)) if share else "none"
        rows.append(f"| {name} | {value:.4g} | {interval} | {part}{n} |")
    return "\n".join(rows)


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return the interval that holds the true share with 95 %, when `share` of `n` samples was seen."""
    centre, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)


def demo_source(data: Any) -> str:
    """Return what the function that writes the demo says of its source, if `data` is the demo."""
    module = vars(sys.modules[type(data).__module__])
    words = [str(value.__doc__) for name, value in module.items() if name.startswith("write_")]
    source = next((text[text.index("Source") :] for text in words if "Source" in text), "")
    return " ".join(source.split()) if data.root == module.get("DEMO") else ""
