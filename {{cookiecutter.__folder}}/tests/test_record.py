"""Every run can be explained later: record.json, and what differs between runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from {{ cookiecutter.package }}.cli import main
from {{ cookiecutter.package }}.practices.base_module import BaseModule
from {{ cookiecutter.package }}.record import save_changes
from {{ cookiecutter.package }}.runs import find_run
from {{ cookiecutter.package }}.workbench import lock

from conftest import PACKAGE, PROJECT, SHORT

FAST = (*SHORT, "--trainer.logger=false", "--export_onnx=false", "--trainer.enable_model_summary=false")


def fit(*arguments: str) -> dict:
    main(["fit", *FAST, *arguments])
    return record()


def record() -> dict:
    return json.loads(Path("runs/latest/record.json").read_text(encoding="utf-8"))


def test_the_newest_run_is_found_without_a_link(workspace: Path):
    for number, name in enumerate(("zebra", "apple")):
        Path("runs", name).mkdir(parents=True)
        (file := Path("runs", name, "config.yaml")).touch()
        os.utime(file, (1000 + number, 1000 + number))
    assert find_run("latest") == Path("runs/apple"), "by time, not by name"
    Path("runs/zebra").rename("runs/latest")
    assert find_run("latest") == Path("runs/latest"), "a copy of a link may be a folder"


def test_a_change_of_any_encoding_is_kept_as_it_is(workspace: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        Path("old.txt").write_bytes(b"na\xefve\n")
        subprocess.run([*git, *words], check=True)
    Path("old.txt").write_bytes(b"caf\xe9\n")
    save_changes(tmp_path)
    assert b"+caf\xe9\n" in (tmp_path / "uncommitted.diff").read_bytes()


def test_a_record_tells_what_was_trained_on_what_and_how_it_ended(workspace: Path):
    found = fit("--seed_everything=5")
    assert found["status"] == "finished" and found["started"] <= found["ended"]
    assert found["seed"] == found["config"]["seed_everything"] == 5
    assert {"python", "torch", "lightning", "cuda"} <= found["versions"].keys()
    assert found["packages"]["torch"].split("+")[0] == found["versions"]["torch"].split("+")[0]
    assert found["data"]["samples"]["train"] > found["data"]["samples"]["val"] > 0 and found["data"]["sha256"]
    assert found["command"] and found["hardware"]["cpus"] > 0 and "commit" in found["template"]
    assert (found["epochs"], found["steps"]) == (1, 3)
    assert found["samples_per_second"] > 0 and found["wall_seconds"] > 0
    assert found["best"][found["config"]["monitor"]["metric"]] > 0


def test_a_record_names_the_commit_and_keeps_what_differs_from_it(workspace: Path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    Path("notes.txt").write_text("before\n", encoding="utf-8")
    git("init")
    git("add", "notes.txt")
    git("commit", "-m", "Begin")
    Path("notes.txt").write_text("after\n", encoding="utf-8")
    found = fit()
    assert len(found["git"]["commit"]) == 40 and " M notes.txt" in found["git"]["changed"]
    assert "+after" in Path("runs/latest/uncommitted.diff").read_text(encoding="utf-8")


def test_a_run_that_dies_has_a_record_of_why(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: object) -> None:
        raise RuntimeError("out of something")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(BaseModule, "on_train_epoch_start", fail)
        fit()
    assert record()["status"] == "failed: RuntimeError: out of something"
    main(["fit", "--resume=latest"])
    assert record()["status"] == "finished"
    assert record()["resumes"][0]["reason"] == "failed: RuntimeError: out of something"


def test_a_killed_run_has_a_record_and_the_resume_says_so(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["", "fit", "once"])
    fit()
    path = Path("runs/latest/record.json")
    killed = record() | {"status": "running"}  # what a killed run leaves: nobody was there to write an end
    path.write_text(json.dumps(killed), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["", "fit", "again"])
    main(["fit", "--resume=latest"])
    assert [one["reason"] for one in record()["resumes"]] == ["killed, as no end was recorded"]
    assert record()["command"] == f"python -m {PACKAGE} fit once"
    assert record()["resumes"][0]["command"] == f"python -m {PACKAGE} fit again"


def test_compare_shows_what_differs_and_nothing_else(workspace: Path, capsys: pytest.CaptureFixture[str]):
    runs = []
    for rate in ("0.001", "0.002"):
        fit(f"--model.learning_rate={rate}")
        runs.append(str(Path("runs") / Path("runs/latest").readlink()))
    capsys.readouterr()
    main(["compare", *runs, "--html", "compare.html"])
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines()]
    assert ["model.init_args.learning_rate", "0.001", "0.002"] in rows
    assert "weight_decay" not in text and "versions: the same" in text and "data: the same" in text
    page = Path("compare.html").read_text(encoding="utf-8")
    assert "<td>model.init_args.learning_rate</td><td>0.001</td><td>0.002</td>" in page


def test_compare_needs_no_torch(command):
    result = command("compare", "runs/none", "runs/other")
    assert result.returncode == 2 and "runs/none/record.json does not exist" in result.stderr
    code = f"import sys, {PACKAGE}.cli, {PACKAGE}.workbench.compare; sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(PROJECT / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_lock_file_has_every_package_with_its_hash(tmp_path: Path):
    frozen = "numpy==2.0\n-e git+https://example.org/mine\nmine @ file:///mine\ntorch==2.9.1\n"
    assert lock.installed(frozen) == ["numpy==2.0", "torch==2.9.1"]
    archive = {"archive_info": {"hashes": {"sha256": "ab12"}}, "url": "somewhere"}
    report = [
        {"metadata": {"name": name, "version": "2.0"}, "download_info": archive, "is_direct": False}
        for name in ("torch", "Numpy")
    ]
    lines = [line for line in lock.lock(report).splitlines() if line[0] != "#"]
    assert lines == ["Numpy==2.0 --hash=sha256:ab12", "torch==2.0 --hash=sha256:ab12"]
