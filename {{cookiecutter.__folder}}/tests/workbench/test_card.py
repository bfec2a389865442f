"""The model card: filled from the record, and what people wrote in it stays."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.workbench.card import HUMAN, OPEN, SOURCE, demo_source, split, wilson

from conftest import SHORT

LATEST = Path("runs/latest")
CARD = LATEST / "MODEL_CARD.md"


def read_sections(path: Path) -> dict[str, str]:
    return split(path.read_text(encoding="utf-8"))


@pytest.fixture
def trained() -> Path:
    """Return the folder of a short run."""
    main(["fit", *SHORT])
    return LATEST.resolve()


def test_wilsons_interval_is_the_published_one():
    """Values of statsmodels.stats.proportion.proportion_confint(method="wilson")."""
    assert wilson(0.9, 100) == pytest.approx((0.8256343, 0.9447708), abs=2e-5)
    assert wilson(1.0, 20) == pytest.approx((0.8388749, 1.0), abs=2e-5)
    assert wilson(0.0, 5) == pytest.approx((0.0, 0.4344825), abs=2e-5)


def test_the_card_tells_what_the_record_and_the_file_tell(trained: Path, build):
    record = json.loads((trained / "record.json").read_text())
    sections = read_sections(CARD)
    digest = hashlib.sha256((trained / "model.onnx").read_bytes()).hexdigest()
    assert digest in sections["File"]
    assert re.search(r"differ from torch's by \de-\d\d", sections["File"])
    assert record["data"]["sha256"] in sections["Data"]
    assert f"train {record['data']['samples']['train']:,}" in sections["Data"]
    assert f"torch {record['versions']['torch']}" in sections["Training"]
    assert (record["git"]["commit"] or "no repository") in sections["Training"]
    assert "part of" in sections["Results"], "a run on part of the data must not look like one on all"
    assert "the command `test` measures it" in sections["Results"]
    demo = demo_source(build().datamodule)
    assert sections[SOURCE] == (demo or OPEN + HUMAN[SOURCE]), "of a demo source and licence are known"
    open_ones = [title for title, text in sections.items() if text.startswith(OPEN)]
    assert open_ones == ["Intended use", "Limits", *([] if demo else [SOURCE])]


def test_a_test_fills_the_card_in(trained: Path):
    main(["test"])
    metrics = json.loads((trained / "test_metrics.json").read_text())
    results = read_sections(CARD)["Results"]
    assert "the command `test`" not in results
    samples = json.loads((trained / "record.json").read_text())["data"]["samples"]["test"]
    for name, value in metrics.items():
        interval = "{:.4g} to {:.4g}".format(*wilson(value, samples)) if name.endswith("accuracy") else "none"
        assert f"| {name} | {value:.4g} | {interval} | {samples} |" in results


def test_what_is_measured_otherwise_is_not_taken_for_the_runs(trained: Path):
    main(["test", "--trainer.limit_test_batches=1"])
    assert (trained / "test_metrics-other.json").is_file() and not (trained / "test_metrics.json").exists()
    assert "the command `test` measures it" in read_sections(CARD)["Results"]
    main(["test"])
    assert (trained / "test_metrics.json").is_file()
    later = (trained / "test_metrics.json").stat().st_mtime + 10
    os.utime(trained / "checkpoints/best.ckpt", (later, later))
    main(["export"])
    assert "the command `test` measures it" in read_sections(CARD)["Results"], "of an earlier checkpoint"


def test_a_file_that_differs_is_not_tried(trained: Path, build, monkeypatch, caplog):
    data, init = build().datamodule, build().config.data.init_args
    monkeypatch.setattr("{{ cookiecutter.package }}.workbench.card.compare", lambda *arguments: 0.1)
    if "predict_root" in init:
        main(["predict", f"--data.predict_root={Path(data.sample_ids('test')[0]).parent}"])
    else:
        found = next(path for name in ("test.*", "data.*") for path in data.root.glob(name))
        main(["predict", f"--data.predict_file={found}"])
    assert not (trained / "tried.json").exists()
    assert "does not count as tried" in caplog.text


def test_a_module_of_other_arguments_has_a_card(trained: Path):
    record = json.loads((trained / "record.json").read_text())
    for name in ("network", "learning_rate"):
        del record["config"]["model"]["init_args"][name]
    (trained / "record.json").write_text(json.dumps(record))
    CARD.unlink()
    main(["export"])
    assert "its own" in read_sections(CARD)["File"] and "learning rate its own" in read_sections(CARD)["Training"]


def test_what_people_wrote_stays_when_the_card_is_written_again(trained: Path):
    text = CARD.read_text().replace(OPEN + HUMAN["Intended use"], "Counting trams.\n\nBy the transport office.")
    CARD.write_text(text + "\n## Contact\n\nAda\n")
    half = f"No trains.\n\n{OPEN}{HUMAN['Limits']}"
    CARD.write_text(CARD.read_text().replace(OPEN + HUMAN["Limits"], half))
    main(["export"])
    sections = read_sections(CARD)
    assert sections["Intended use"] == "Counting trams.\n\nBy the transport office."
    assert sections["Limits"] == half, "what is half written, too"
    assert sections["Contact"] == "Ada"
    main(["fit", *SHORT])
    assert LATEST.resolve() != trained
    sections = read_sections(CARD)
    assert sections["Intended use"].startswith("Counting trams."), "a new run's card begins with it"
    assert sections["Contact"] == "Ada"


def test_the_source_of_other_data_is_asked_for_and_then_kept_for_that_data(trained: Path, build, monkeypatch):
    monkeypatch.setattr(f"{type(build().datamodule).__module__}.DEMO", Path("data/other"))
    CARD.unlink()
    main(["export"])
    assert read_sections(CARD)[SOURCE] == OPEN + HUMAN[SOURCE]
    CARD.write_text(CARD.read_text().replace(OPEN + HUMAN[SOURCE], "Ours."))
    main(["export", "--output", "elsewhere.onnx"])
    assert read_sections(Path("MODEL_CARD.md"))[SOURCE] == "Ours.", "of the newest card on the same data"
    Path("MODEL_CARD.md").unlink()
    CARD.write_text(re.sub(r"fingerprint `\w+`", "fingerprint `0`", CARD.read_text()))
    main(["export", "--output", "elsewhere.onnx"])
    assert read_sections(Path("MODEL_CARD.md"))[SOURCE] == OPEN + HUMAN[SOURCE], "of other data it is not true"


def test_predicting_ones_own_samples_tries_the_exported_file_and_leaves_a_trace(trained: Path, build):
    main(["predict"])
    assert not (trained / "tried.json").exists(), "a split is not new"
    init, data = build().config.data.init_args, build().datamodule
    if "predict_root" in init:
        folder = Path(data.sample_ids("test")[0]).parent
        source = f"--data.predict_root={folder}"
    else:
        source = f"--data.predict_file={next(path for name in ('test.*', 'data.*') for path in data.root.glob(name))}"
    main(["predict", source])
    tried = json.loads((trained / "tried.json").read_text())
    assert tried["source"] == source.split("=")[1]
    assert tried["sha256"] == hashlib.sha256((trained / "model.onnx").read_bytes()).hexdigest()
    assert 0 <= tried["difference"] < 1e-4
