"""The report of a run: complete, self-contained, of the numbers that were measured, and never in a run's way."""

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.base_module import BaseModule
from {{ cookiecutter.package }}.training import best_module, open_run
from {{ cookiecutter.package }}.workbench import report
from {{ cookiecutter.package }}.workbench.report import charts, page, verdict

from conftest import PACKAGE, PROJECT, SHORT

FAST = (*SHORT, "--trainer.logger=false", "--export_onnx=false", "--trainer.enable_model_summary=false")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> $x^{ \n\x07 &amp; 名"
LATEST = Path("runs/latest")


class Page(HTMLParser):
    """Headings, addresses, tags and all text of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.tags, self.addresses, self.headings, self.text = [], [], [], ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[Any]):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")], "no script may hide in an attribute"

    def handle_data(self, data: str):
        if self.lasttag == "h2" and data.strip():
            self.headings.append(data.strip())
        self.text += data


def look(path: Path = LATEST / "report.html") -> Page:
    """Return the page after what holds for every page: it asks nothing of a network, and no script runs in it."""
    found = Page(path)
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in found.addresses)
    assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & set(found.tags)
    assert "default-src 'none'" in path.read_text(encoding="utf-8")
    return found


def rows(train: list[float], val: list[float], first: float | None = None) -> list[dict[str, str]]:
    """Return rows as metrics.csv has them: a step's, then two an epoch."""
    found = [{"epoch": "0", "step": "0", "train/loss_step": str(first or train[0]), "train/loss": "", "val/loss": ""}]
    for epoch, pair in enumerate(zip(train, val, strict=True)):
        for name, value in zip(("val/loss", "train/loss"), reversed(pair), strict=True):
            found.append({"epoch": str(epoch), "step": str(epoch), name: str(value)})
    return found


FALLING = [2.3, 1.2, 0.7, 0.5, 0.42, 0.4, 0.39, 0.385]
CURVES = {
    "fine": [(FALLING, [x + 0.1 for x in FALLING]), (FALLING, [2.3, 1.2, 0.8, 0.6, 0.55, 0.56, 0.55, 0.56])],
    "overfitting": [
        (FALLING, [2.3, 1.3, 0.9, 0.8, 0.85, 0.95, 1.1, 1.3]),
        (FALLING, [0.9, 0.91, 1, 1.1, 1.2, 1.3, 1, 1.4]),
    ],
    "underfitting": [
        ([2.3, 2.2, 2.1, 2.0, 1.9, 1.8, 1.7, 1.6], [2.3, 2.2, 2.1, 2.0, 1.9, 1.8, 1.7, 1.6]),
        ([2.31, 2.3, 2.3, 2.29, 2.3], [2.31, 2.3, 2.31, 2.3, 2.3]),
        ([2.3, 1.6, 1.1], [2.2, 1.5, 1.0]),
    ],
    "rate too high": [
        ([2.3, 1.2, 2.1, 1.4, 2.0], [2.3, 1.3, 2.2, 1.5, 2.1]),
        ([2.3, 2.9, 4.0, 8.0], [2.4, 3.0, 5.0, 9.0]),
        ([2.3, 1.0, float("nan")], [2.3, 1.0, 1.0]),
        ([2.3, 1.0, 0.5], [2.3, float("inf"), 0.5]),
        ([3.1, 2.9, 2.8], [775.0, 30.0, 4.0]),
    ],
    "too short": [([2.3, 1.0], [2.3, 1.1]), ([], [])],
}


@pytest.mark.parametrize(("kind", "train", "val"), [(k, *pair) for k, pairs in CURVES.items() for pair in pairs])
def test_the_verdict_tells_the_courses_apart_that_the_articles_teach(kind: str, train: list[float], val: list[float]):
    found = verdict.judge(rows(train, val) if train else [])
    assert found.kind == kind, found.sentence
    assert found.sentence.endswith(".")


def test_a_step_that_is_logged_late_says_nothing_of_the_start():
    """Where epochs are short, the first step that is logged is of a later one."""
    found = rows([2.3, 2.0, 1.6, 1.3, 1.2, 1.1, 1.08, 1.07], [2.3, 2.1, 1.8, 1.5, 1.35, 1.3, 1.29, 1.28])
    found[0] |= {"epoch": "5", "train/loss_step": "0.4"}
    assert verdict.judge(found).kind == "fine", verdict.judge(found).sentence


def test_an_epoch_that_begins_low_is_not_hardly_falling():
    """Of a large data set even the first epoch's mean is low: the first steps say where it came from."""
    low = [0.3, 0.29, 0.285, 0.284]
    assert verdict.judge(rows(low, low, first=2.3)).kind == "fine"
    assert verdict.judge(rows(low, low)).kind == "underfitting"


def test_a_resumed_run_has_a_page_after_fit_and_the_command_writes_the_same(workspace: Path):
    main(["fit", *FAST, "--trainer.log_every_n_steps=1"])
    main(["fit", "--resume=latest", "--trainer.max_epochs=3"])
    first = (LATEST / "report.html").read_bytes()
    pictures = {path.name: path.read_bytes() for path in (LATEST / "report").glob("*.png")}
    found = look()
    assert found.headings[0] == "Learning curves"
    assert found.headings[-4:] == ["Test split", "Time", "Practices in force", "Run record"]
    assert "Training batch" in found.headings and len(found.headings) >= 7
    assert "Not measured" in found.text and "failed" not in found.text
    assert {"learning-rate.png", "curve-0.png"} <= set(pictures)
    assert len(pictures) == found.tags.count("img"), "each picture is a file and in the page"
    main(["report"])
    assert (LATEST / "report.html").read_bytes() == first, "one run gives one page"
    assert {path.name: path.read_bytes() for path in (LATEST / "report").glob("*.png")} == pictures
    main(["test"])
    measured = json.loads((LATEST / "test_metrics.json").read_text())["test/loss"]
    assert "test/loss" in look().text and f"{measured:.4g}" in look().text


def test_drawing_changes_nothing_for_who_draws_besides(tmp_path: Path):
    before = dict(pyplot.rcParams)
    picture = charts.lines(tmp_path / "one.png", {"a $x^{": {0: 1.0, 1: 0.5}}, "epoch", "名 \n", "")
    assert picture.file.stat().st_size > 1000
    assert dict(pyplot.rcParams) == before and not pyplot.get_fignums()


def test_a_page_tells_how_the_run_went(workspace: Path):
    main(["fit", *FAST, "--trainer.max_epochs=3", "--model.learning_rate=1e-9", "--config=configs/ema.yaml"])
    found, record = look(), json.loads((LATEST / "record.json").read_text())
    assert "underfitting" in found.text and "hardly fallen" in found.text
    assert f"{record['best'][record['config']['monitor']['metric']]:.4g}" in found.text
    assert record["data"]["sha256"] in found.text and record["versions"]["torch"] in found.text
    assert "EMAWeightAveraging" in found.text and "decay 0.99" in found.text
    assert set(record["seconds"]) == {"start", "data", "training", "validation", "other"}
    assert sum(record["seconds"].values()) == pytest.approx(record["wall_seconds"], abs=5)
    assert min(record["seconds"].values()) >= 0


def test_a_jumping_loss_of_a_real_run_is_seen(workspace: Path):
    main(["fit", *FAST, "--trainer.max_epochs=4", "--model.learning_rate=3", "--trainer.log_every_n_steps=1"])
    with (LATEST / "metrics.csv").open(newline="") as file:
        found = verdict.judge(list(csv.DictReader(file)))
    assert found.kind == "rate too high", found.sentence


def test_every_practice_in_force_names_a_file_that_there_is(build):
    with (Path(report.__file__).parent / "practices.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    config = json.loads(json.dumps(build().config.as_dict(), default=str))
    for one in found:
        known = one["key"] == "ALWAYS" or report.in_force.lookup(config, one["key"])[0]
        places = [PROJECT / one["held in"], PROJECT / "src" / PACKAGE / one["held in"]]
        assert not known or one["held in"] == "TASK" or any(place.exists() for place in places), one


class Renamed:
    """Samples whose every text is hostile."""

    def __init__(self, data: Any):
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {k: HOSTILE if isinstance(v, str) else v for k, v in self.data[index].items()}


def test_names_and_texts_of_the_data_are_only_ever_text(workspace: Path):
    main(["fit", *FAST])
    _, cli, run = open_run([])
    module = best_module(cli, run)
    if hasattr(module, "class_names"):
        module.class_names = [f"{HOSTILE}{number}" for number in range(len(module.class_names))]
    for split in ("train", "val"):
        cli.datamodule._datasets[split] = Renamed(cli.datamodule.dataset(split))
    sections = report._of_the_task(cli, module, run / "report")
    page.write(run / "report.html", HOSTILE, [(HOSTILE, HOSTILE, HOSTILE)], [*sections, page.Section(HOSTILE, HOSTILE)])
    assert look().text.count("<script>alert(1)</script>") >= 10, "shown as text"


def test_a_report_that_breaks_does_not_cost_the_run(workspace: Path, monkeypatch: pytest.MonkeyPatch, caplog):
    def fail(*arguments: Any):
        raise RuntimeError("no ink")

    monkeypatch.setattr(report, "write", fail)
    main(["fit", *FAST])
    assert json.loads((LATEST / "record.json").read_text())["status"] == "finished"
    assert "no ink" in caplog.text


def test_a_metric_that_was_never_a_number_is_said(workspace: Path):
    main(["fit", *FAST])
    record = json.loads((LATEST / "record.json").read_text())
    lines = list(csv.DictReader((LATEST / "metrics.csv").open(newline="")))
    with (LATEST / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        name = record["config"]["monitor"]["metric"]
        writer.writerows({**line, name: "nan" if line[name] else ""} for line in lines)
    main(["report"])
    assert "it was never a number" in look().text


def test_pictures_that_cannot_be_drawn_do_not_cost_the_rest_of_the_page(workspace: Path, monkeypatch):
    def fail(*arguments: Any):
        raise RuntimeError("no logits")

    monkeypatch.setattr(report, "_of_the_task", fail)
    main(["fit", *FAST])
    found = look()
    assert "no logits" in found.text
    assert found.headings[-4:] == ["Test split", "Time", "Practices in force", "Run record"]


def test_a_run_without_a_checkpoint_gives_one_sentence(workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    def fail(*arguments: Any):
        raise RuntimeError("out of something")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(BaseModule, "on_train_batch_start", fail)
        main(["fit", *FAST])
    with pytest.raises(SystemExit) as stop:
        main(["report"])
    sentence = capsys.readouterr().err.strip().splitlines()[-1]
    assert stop.value.code == 2 and "best.ckpt does not exist" in sentence


def test_runs_are_compared_on_one_page(workspace: Path, capsys):
    for number, name in enumerate(("first", "second")):
        run = Path("runs") / name
        run.mkdir(parents=True)
        record = {"run": name, "config": {"note": HOSTILE, "rate": number}, "best": {"val/loss": 0.5 - 0.1 * number}}
        (run / "record.json").write_text(json.dumps(record))
        with (run / "metrics.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["epoch", "step", "train/loss_step", "train/loss", "val/loss"])
            writer.writeheader()
            writer.writerows(rows(FALLING, [x + number for x in FALLING]))
    main(["compare", "runs/first", "runs/second", "--html"])
    found = look(Path("runs/compare.html"))
    assert found.headings == ["Learning curves", "Results", "Data", "Versions", "Configuration"]
    assert found.tags.count("img") == 2 == len(list(Path("runs/compare").glob("*.png")))
    assert "rate" in found.text and "note" not in found.text and found.text.count("fine") == 2
    main(["compare", "runs/first", "runs/second", "--html", "both"])
    assert look(Path("both.html")).tags.count("img") == 2
    with pytest.raises(SystemExit):
        main(["compare", "--html", "runs/first", "runs/second", "runs/first"])
    assert "is a folder" in capsys.readouterr().err


def test_nothing_of_the_report_is_loaded_before_it_is_asked_for(command):
    result = command("todo", PYTHONPROFILEIMPORTTIME="1")
    assert not {"matplotlib", "jinja2", "torch"} & {line.split("|")[-1].strip() for line in result.stderr.splitlines()}
    assert result.returncode == 0, result.stderr
