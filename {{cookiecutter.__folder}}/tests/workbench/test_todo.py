"""The list of what is to be made yours: told from the project, in the order and words of TODO.md."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
import yaml

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.workbench.todo import look, read_marks
from {{ cookiecutter.package }}.workbench.todo_checks import CHECKS, Project

from conftest import PROJECT

STEP = re.compile(r"(Set|Replace|Write|Run|Try|Change) ")


def begun(folder: Path) -> bool:
    """Return whether someone has begun to make this project theirs, of which the list then tells other things."""
    project = Project(folder)
    items = look(project)
    demos = [pair for item in items for pair in re.findall(r"`([\w.]+)` is no longer `([^`]+)`", item.proof)]
    closed = {item.id for item in items if item.state in ("done", "decided", "dismissed")} - {"author"}
    others = {item.id for item in items} - set(CHECKS)
    return bool(closed | others) or any(str(project.value(key)).lower() != demo.lower() for key, demo in demos)


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Path:
    """Return a copy of this project, without runs and data."""
    ignored = shutil.ignore_patterns("runs", "data", "tests", "my", ".*", "__pycache__", "*.egg-info")
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder, ignore=ignored)
    shutil.copytree(PROJECT / "src", folder / "src", dirs_exist_ok=True)  # whatever a package is called
    monkeypatch.chdir(folder)
    if begun(folder):
        pytest.skip("the list of a project as it was generated is looked at, and this one is begun")
    return folder


def states(folder: Path) -> dict[str, str]:
    return {item.id: item.state for item in look(Project(folder))}


def edit(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{pattern} is not in {path}"
    path.write_text(changed, encoding="utf-8")


def config_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "configs/default.yaml").read_text(encoding="utf-8"))


def make_run(folder: Path, **best: float) -> Path:
    """Write what a finished run on the configured data leaves."""
    run = folder / "runs/20260101-000000"
    run.mkdir(parents=True, exist_ok=True)
    record = {"run": run.name, "status": "finished", "config": {"data": config_of(folder)["data"]}, "best": best}
    (run / "record.json").write_text(json.dumps(record), encoding="utf-8")
    return run


def test_the_page_and_the_list_agree(project: Path, capsys):
    """Every section has what it takes, every mark a section, and both are shown in the order of the page."""
    page = (project / "TODO.md").read_text(encoding="utf-8")
    items = look(Project(project))
    assert [(item.id, item.title) for item in items] == re.findall(r"(?m)^## ([a-z_]+): (.+)$", page)
    assert {mark.id for mark in read_marks(Project(project))} <= {item.id for item in items} <= set(CHECKS)
    for item in items:
        assert item.why and item.proof, item
        assert item.steps or item.state == "done", item
        assert all(STEP.match(step) for step in item.steps), item.steps
        assert (project / item.file).is_file()
    main(["todo"])
    printed = capsys.readouterr().out
    assert re.findall(r"(?m)^ ?\d+ [a-z ]{13}([a-z_]+) ", printed) == [item.id for item in items]


def test_a_fresh_project_has_everything_open_and_names_the_next_step(project: Path, capsys):
    found = states(project)
    assert set(found.values()) <= {"open", "done"}, "no mark is missing in a fresh project"
    assert [name for name, state in found.items() if state == "done"] in ([], ["author"])
    with pytest.raises(SystemExit) as exit_info:
        main(["todo", "--check", "--json"])
    assert exit_info.value.code == 1
    for item in json.loads(capsys.readouterr().out):
        assert {"id", "title", "state", "file", "line", "why", "steps", "proof"} <= set(item)
        line = (project / item["file"]).read_text(encoding="utf-8").splitlines()[item["line"] - 1]
        assert f"TODO(you): {item['id']}" in line or line.startswith(f"## {item['id']}:"), line
    main(["todo"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  1. ") for line in lines), "the first open item's steps are printed"


def test_every_step_names_the_line_that_it_is_about(project: Path):
    for item in look(Project(project)):
        for step in item.steps:
            if found := re.match(r"Set `([\w.]+)` in `(\S+)` \(line (\d+)\) to <.+>\.$", step):
                line = (project / found[2]).read_text(encoding="utf-8").splitlines()[int(found[3]) - 1]
                assert line.split(":")[0].strip() == found[1].split(".")[-1]
            assert not step.startswith("Set") or found, f"{step} lacks the line of a key that is there"


def test_the_demos_values_in_the_page_are_the_configurations(project: Path):
    """Or a proof would look for a demo that is no longer there, and call it done."""
    for item in look(Project(project)):
        for key, demo in re.findall(r"`([\w.]+)` is no longer `([^`]+)`", item.proof):
            assert str(Project(project).value(key)).lower() == demo.lower(), item.id


def test_data_of_ones_own_is_told_from_the_demo(project: Path):
    assert states(project)["data"] == "open"
    edit(project / "configs/default.yaml", r"    root: \S+", "    root: my/data")
    assert states(project)["data"] == "open", "a folder that is not there is no data"
    (project / "my/data/cats").mkdir(parents=True)
    assert states(project)["data"] == "open", "an empty folder is no data"
    for name in ("cats/1.png", "data.csv", "classes.txt"):
        (project / "my/data" / name).write_text("a,b\n", encoding="utf-8")
    assert states(project)["data"] == "done"


@pytest.mark.parametrize(("target", "state"), [("1e-3", "done"), ("true", "open"), ("soon", "open"), (".nan", "open")])
def test_a_target_is_a_number_however_it_is_written(project: Path, target: str, state: str):
    edit(project / "configs/default.yaml", r"  target: null", f"  target: {target}")
    assert states(project)["target"] == state


def test_what_is_broken_is_said_or_left_out(project: Path, capsys):
    run = make_run(project)
    other = project / "runs/20260102-000000"
    other.mkdir()
    (other / "record.json").write_text("{")
    assert states(project)["baseline"] == "done"
    (run / "record.json").write_bytes(b"\xff")
    assert states(project)["baseline"] == "open"
    edit(project / "configs/default.yaml", r"    root: (\S+)", r"    root: [\1")
    with pytest.raises(SystemExit):
        main(["todo"])
    assert re.search(r"^error: \S+default.yaml is no YAML: .+ in line \d+; mend", capsys.readouterr().err)


def test_columns_are_done_when_ones_own_table_has_them(project: Path):
    if "columns" not in states(project):
        pytest.skip("this task reads no table")
    (project / "my").mkdir()
    edit(project / "configs/default.yaml", r"    root: \S+", "    root: my")
    (project / "my/data.csv.bak").write_text("a,b\n1,2\n", encoding="utf-8")
    assert states(project)["data"] == states(project)["columns"] == "open", "a copy is no data"
    (project / "my/data.txt").write_text("a,b\n1,2\n", encoding="utf-8")
    assert states(project)["columns"] == "open", "nothing reads this kind"
    (project / "my/data.csv").write_bytes(b"a,b\n1,caf\xe9\n")
    item = next(item for item in look(Project(project)) if item.id == "columns")
    assert item.state == "open" and "it has a, b" in item.missing
    init = config_of(project)["data"]["init_args"]
    values = [init.get(key) for key in ("text_column", "label_column", "target", "id_column")]
    names = [*filter(None, values), *init.get("categorical", []), *init.get("ignored", [])]
    (project / "my/data.csv").write_text(",".join(["a", *names]) + "\n", encoding="utf-8")
    assert states(project)["columns"] == "done"
    (project / "my/data.csv").unlink()
    (project / "my/data.jsonl").write_text("\n" + json.dumps(dict.fromkeys(names)) + "\n", encoding="utf-8")
    assert states(project)["columns"] == "done"


def test_the_holder_the_target_and_the_choices_are_read_from_their_files(project: Path):
    for name in ("LICENSE", "pyproject.toml"):
        path = project / name
        path.write_text(path.read_text(encoding="utf-8").replace("Your Name", "Ada Lovelace"), encoding="utf-8")
    assert states(project)["author"] == "done"
    edit(project / "configs/default.yaml", r"  target: null", "  target: 0.9")
    assert states(project)["target"] == "done"
    edit(project / "configs/default.yaml", r"  metric: \S+", "  metric: val/other")
    assert states(project)["metric"] == "done"
    edit(project / "configs/default.yaml", r"(class_path: \S+\.networks)\.\w+", r"\1.Mine")
    assert states(project)["network"] == "done"


def test_runs_prove_what_they_show_and_only_on_the_data_that_is_configured(project: Path):
    edit(project / "configs/default.yaml", r"  target: null", "  target: 0.9")
    monitor = config_of(project)["monitor"]
    reached, missed = (0.8, 0.95) if monitor["mode"] == "min" else (0.95, 0.8)
    names = ("baseline", "measured", "tried", "result")
    run = make_run(project, **{monitor["metric"]: missed})
    assert [states(project)[name] for name in names] == ["done", "open", "open", "open"]
    item = next(item for item in look(Project(project)) if item.id == "result")
    assert item.missing == f"{monitor['metric']} of {run.name} is {missed}, not 0.9"
    make_run(project, **{monitor["metric"]: reached})
    (run / "test_metrics.json").write_text("{}")
    (run / "tried.json").write_text("{}")
    assert [states(project)[name] for name in names] == ["done"] * 4
    edit(project / "configs/default.yaml", r"    root: \S+", "    root: my/other")
    assert {states(project)[name] for name in names} == {"open"}, "a run on other data proves nothing"
    edit(project / "configs/default.yaml", r"    root: \S+", "    root: my/data")
    make_run(project)
    record = json.loads((run / "record.json").read_text())
    (run / "record.json").write_text(json.dumps({**record, "status": "failed: OSError"}))
    assert states(project)["baseline"] == "open", "a run that failed is no baseline"


def test_the_card_is_done_when_no_mark_is_left_in_it(project: Path):
    latest = project / "runs/latest"
    latest.mkdir(parents=True)
    (latest / "MODEL_CARD.md").write_text("## Limits\n\nTODO(you): card: what it must not be used for\n")
    item = next(item for item in look(Project(project)) if item.id == "card")
    assert (item.state, item.file, item.line) == ("open", "runs/latest/MODEL_CARD.md", 3)
    assert item.steps == ["Write <what the line asks for> over the mark in `runs/latest/MODEL_CARD.md` (line 3)."]
    (latest / "MODEL_CARD.md").write_text("## Limits\n\nLetters.\n")
    assert states(project)["card"] == "done"


@pytest.mark.parametrize("word", ["decided", "dismissed"])
def test_a_reason_at_the_mark_closes_an_item_and_no_reason_does_not(project: Path, word: str):
    config = project / "configs/default.yaml"
    edit(config, r"TODO\(you\): metric:.*", f"TODO(you): metric {word}:")
    assert states(project)["metric"] == "open"
    edit(config, rf"TODO\(you\): metric {word}:", f"TODO(you): metric {word}: errors cost alike")
    item = next(item for item in look(Project(project)) if item.id == "metric")
    assert (item.state, item.missing) == (word, "errors cost alike")
    edit(project / "TODO.md", r"(?m)^TODO\(you\): tried:.*", f"TODO(you): tried {word}: nothing new yet")
    assert states(project)["tried"] == word


def test_a_mark_that_is_deleted_before_its_item_is_done_is_missed(project: Path):
    edit(project / "configs/default.yaml", r"# TODO\(you\): metric:.*\n", "")
    edit(project / "TODO.md", r"(?m)^TODO\(you\): baseline:.*\n", "")
    found = states(project)
    assert (found["metric"], found["baseline"]) == ("mark missing", "mark missing")
    edit(project / "TODO.md", r"(?ms)^## measured: .+?(?=^## )", "")
    edit(project / "TODO.md", r"(?ms)^## target: .+?(?=^## )", "")
    items = {item.id: item for item in look(Project(project))}
    assert items["measured"].title == "A section is gone"
    assert (items["target"].title, items["target"].file) == ("A mark without a section", "configs/default.yaml")
    assert items["target"].state == items["measured"].state == "open"


def test_items_of_ones_own_are_open_until_their_box_is_ticked(project: Path):
    page = project / "TODO.md"
    page.write_text(page.read_text() + "\n## Step-2: The labels' spelling\nWhy: two are one.\n- [ ] looked at all\n")
    assert states(project)["Step-2"] == "open"
    for box in ("x", "X"):
        edit(page, r"- \[.\] looked", f"- [{box}] looked")
        assert states(project)["Step-2"] == "done"
    edit(page, r"- \[X\] looked", "- [ ] looked")
    page.write_text(page.read_text() + "\nTODO(you): Step-2 dismissed: 'there are two'\n")
    assert states(project)["Step-2"] == "dismissed", "a reason may be quoted"


def test_check_passes_when_nothing_is_open(project: Path, capsys):
    page = project / "TODO.md"
    page.write_text("## spelling: The labels' spelling\n- [x] looked at all\n")
    with pytest.raises(SystemExit):
        main(["todo", "--check"])  # the sections that every project has are missed
    reasons = "".join(f"## {name}: it\nTODO(you): {name} dismissed: a test\n" for name in CHECKS)
    page.write_text(page.read_text() + reasons)
    main(["todo", "--check"])
    assert "are done." in capsys.readouterr().out


def test_the_list_takes_less_than_half_a_second_without_torch(command, project: Path):
    started = time.perf_counter()
    result = command("todo", PYTHONPROFILEIMPORTTIME="1")
    assert time.perf_counter() - started < 5, "a loaded machine is allowed ten times"
    assert result.returncode == 0 and "Next: " in result.stdout
    assert not re.search(r"\| +(torch|lightning|numpy)\b", result.stderr)
