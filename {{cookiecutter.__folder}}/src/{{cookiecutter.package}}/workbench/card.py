"""MODEL_CARD.md beside an exported file: what it is, what it came from, how good it is, and what only people know.

The sections that people write, and those that they add, are kept when the card is written again; a new run's card
takes over what the newest card before it says.
"""

import hashlib
import json
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import onnxruntime

from ..practices.export import compare
from ..record import best, read
from ..repeat import wilson
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
    cards = [read_sections(one) for one in chain([card], sorted(RUNS.glob(f"[!l]*/{NAME}"), reverse=True))]
    for title, wanted in HUMAN.items():
        # Where data comes from is true of that data alone.
        told = [one[title] for one in cards if title in one and (title != SOURCE or one.get("Data") == facts["Data"])]
        facts[title] = next((text for text in told if OPEN not in text), OPEN + wanted)
    facts[SOURCE] = demo_source(cli.datamodule) or facts[SOURCE]
    added = {title: text for title, text in cards[0].items() if title not in facts}
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
    facts = {"source": str(own[0]), "model": path.name, "sha256": digest(path), "difference": difference}
    (run / "tried.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"Tried: {path} on {own[0]}, differs from torch by {difference:.0e}")


def read_sections(card: Path) -> dict[str, str]:
    """Return the sections of a card by title; none where there is no card."""
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    return {title: body.strip() for title, body in re.findall(r"(?ms)^## (.+?)\n(.*?)(?=^## |\Z)", text)}


def describe(cli: Any, run: Path, path: Path) -> dict[str, str]:
    """Return the sections that the run's record tells, in the card's order; those of people are still empty."""
    record, module = read(run), best_module(cli, run).eval()
    config, data, git, hardware = (record[name] for name in ("config", "data", "git", "hardware"))
    model, batch_size = config["model"]["init_args"], config["data"]["init_args"].get("batch_size")
    difference = compare(module, path, module.example_inputs(cli.datamodule.sample_batch()))
    return {
        "File": bullets(
            f"`{path.name}`, {path.stat().st_size / 1e6:.2f} MB, sha256 `{digest(path)}`",
            f"from run `{run.name}`; its outputs differ from torch's by {difference:.0e} of the largest at most",
            f"{config['model']['class_path']}, {model['network']['class_path']} {model['network'].get('init_args')}",
        ),
        "Intended use": "",
        "Limits": "",
        "Results": results(run, config, data["samples"]),
        "Data": bullets(
            f"folder `{config['data']['init_args'].get('root')}`, fingerprint `{data['sha256']}`",
            ", ".join(f"{split} {count:,}" for split, count in data["samples"].items()) + " samples",
            *([f"classes: {', '.join(data['class_names'])}"] if "class_names" in data else []),
        ),
        SOURCE: "",
        "Training": bullets(
            f"seed {record['seed']}, {record.get('epochs', 0)} epochs, {record.get('steps', 0)} steps, batch size "
            f"{batch_size}, learning rate {model.get('learning_rate')}, precision {config['trainer']['precision']}",
            f"commit {git['commit']} (None: no repository), changed since: {', '.join(git['changed']) or 'nothing'}",
            ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version),
            f"{hardware['machine']}, {hardware['cpus']} CPUs, GPUs: {', '.join(hardware['gpus']) or 'none'}",
        ),
    }


def bullets(*lines: str) -> str:
    """Return lines as a list."""
    return "\n".join(f"- {line}" for line in lines)


def results(run: Path, config: dict[str, Any], samples: dict[str, int]) -> str:
    """Return the metrics of both splits as a table; a share of samples has an interval, other metrics need repeats."""
    file, monitor = run / "test_metrics.json", config["monitor"]
    tested = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    found = {k: v for k, v in best(run, monitor["metric"], monitor["mode"]).items() if k.startswith("val/")} | tested
    rows = ["| metric | value | 95 % interval | samples |", "|---|---|---|---|"]
    for name, value in sorted(found.items()):
        split, n = name.split("/")[0], samples.get(name.split("/")[0], 0)
        part = "part of " if config["trainer"].get(f"limit_{split}_batches") is not None else ""
        share = name.endswith("accuracy") and n and not part
        interval = "{:.4g} to {:.4g}".format(*wilson(value, n)) if share else "none"
        rows.append(f"| {name} | {value:.4g} | {interval} | {part}{n} |")
    if not tested:
        rows.append("| test | not measured; the command `test` measures it and writes it here | | |")
    rows += ["", "Intervals are Wilson's (1927), of a share of n samples; for other metrics see `fit --repeat`."]
    return "\n".join(rows)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def demo_source(data: Any) -> str:
    """Return what the function that writes the demo says of its source, if `data` is the demo."""
    module = vars(sys.modules[type(data).__module__])
    words = [str(value.__doc__) for name, value in module.items() if name.startswith("write_")]
    source = next((text[text.index("Source") :] for text in words if "Source" in text), "")
    return " ".join(source.split()) if data.root == module.get("DEMO") else ""
