"""The report of a run: report.html, one page that needs no network, and its pictures beside it in report/."""

import importlib
import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...mistakes import explain
from .charts import learning
from .page import Section, Table, write
from .verdict import judge, read

# What batches hold, and which file makes pictures of it; a project has those of its own task.
KINDS = {"label": "classification", "mask": "segmentation", "target": "regression"}
TIME = (
    "Until the end of the last epoch: start, before the first step; data, waiting for batches, against which workers "
    "or a cache help; training, forward to optimizer; validation, its data included; other, checkpoints and loggers."
)


def main(arguments: Sequence[str]) -> None:
    """Write the report of the run that --run names, or of the newest."""
    from ...runs import find_checkpoint
    from ...training import open_run, require_same_facts

    _, cli, run = open_run(arguments)
    find_checkpoint(run, "best")
    require_same_facts(cli)
    write_report(cli, run)


def write_report(cli: Any, run: Path) -> None:
    """Write the report of `run`, whose configuration `cli` has read, and say where."""
    from ...record import best as best_of
    from ...record import read as read_record
    from ...training import best_module
    from .in_force import table

    folder = run / "report"
    for old in folder.glob("*.png"):
        old.unlink()
    rows, record = read(run), read_record(run)
    monitor, mode = (record["config"]["monitor"][name] for name in ("metric", "mode"))
    verdict, best = judge(rows), best_of(run, monitor, mode)
    curves = learning(rows, folder, monitor, int(best["epoch"]) if best else None)
    sections = [
        Section("Learning curves", f"Verdict: {verdict.kind}. {verdict.sentence}", pictures=curves),
        *_or_why_not(cli, best_module(cli, run), folder),
        _tested(run),
        _times(record),
        Section("Practices in force", "As resolved for this run.", table(record)),
        _recorded(record, run),
    ]
    lead = [
        (monitor, best.get(monitor), f"the best, of epoch {best['epoch']:.0f}" if best else "it was never a number"),
        ("verdict", verdict.kind, verdict.sentence),
        ("status", record.get("status"), f"{record.get('epochs', 0)} epochs, {record.get('steps', 0)} steps"),
        ("samples a second", record.get("samples_per_second"), "validation's time included"),
    ]
    write(run / "report.html", f"{type(cli.model).__name__}, run {run.name}", lead, sections)
    print(f"Report: {run / 'report.html'}")


def _or_why_not(cli: Any, module: Any, folder: Path) -> list[Section]:
    """Return the task's sections; an error there, as of an unusual network, must not cost the rest of the page."""
    try:
        return _of_the_task(cli, module, folder)
    except Exception as error:
        logging.getLogger(__name__).warning("the task's part of the report: %r", error, exc_info=True)
        return [Section("Samples", f"Drawing them failed: {explain(error) or repr(error)}")]


def _of_the_task(cli: Any, module: Any, folder: Path) -> list[Section]:
    batch = cli.datamodule.sample_batch()
    for key, kind in KINDS.items():
        if key in batch and importlib.util.find_spec(f".{kind}", __package__):
            found: list[Section] = importlib.import_module(f".{kind}", __package__).sections(cli, module, folder)
            return found
    return [Section("Samples", f"Nothing here knows batches of {', '.join(batch)}; see KINDS in workbench/report.")]


def _tested(run: Path) -> Section:
    from ...record import tested

    measured = tested(run)
    if not measured:
        return Section("Test split", "Not measured; do so once, when nothing is left to choose: the test command.")
    rows = [[name, float(value)] for name, value in sorted(measured.items())]
    return Section("Test split", "Choosing by these numbers would spoil them.", Table(["metric", "value"], rows))


def _times(record: dict[str, Any]) -> Section:
    seconds = record.get("seconds", {})
    total = sum(seconds.values()) or 1.0
    rows = [[k, s, f"{100 * s / total:.0f} %"] for k, s in sorted(seconds.items(), key=lambda item: -item[1])]
    return Section("Time", TIME if seconds else "Not recorded.", Table(["", "seconds", "share"], rows))


def _recorded(record: dict[str, Any], run: Path) -> Section:
    git, data, resumes = record.get("git", {}), record.get("data", {}), record.get("resumes", [])
    samples = ", ".join(f"{count} {split}" for split, count in data.get("samples", {}).items())
    rows: list[list[Any]] = [
        ["command", record.get("command")],
        ["time", f"{record.get('started')} to {record.get('ended')}"],
        ["resumed", "; ".join(f"{one['time']}: {one['reason']}" for one in resumes) or "never"],
        ["data", f"{samples}; fingerprint {data.get('sha256')}"],
        ["code", f"commit {git['commit']}, {len(git['changed'])} files changed" if git.get("commit") else "not in git"],
        ["versions", ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items() if version)],
        ["machine", ", ".join(f"{name} {value}" for name, value in record.get("hardware", {}).items() if value)],
    ]
    config = (run / "config.yaml").read_text(encoding="utf-8")
    return Section("Run record", "The rest is in record.json.", Table(["", ""], rows, prose=True), folded=config)
