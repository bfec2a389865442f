"""What is said while a run goes on, and at a command's end."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from {{ cookiecutter.package }}.cli import commands, main
from {{ cookiecutter.package }}.progress import NEXT, Bar, Lines, compare_target

from conftest import PACKAGE, SHORT

LINE = re.compile(
    r"^epoch (\d)/[23]  [\d.e+]+ steps/s  train/loss [\d.e+-]+  "
    r"(\S+) ([-\d.e+]+)  best ([-\d.e+]+)  left \d+:\d\d:\d\d$",
    re.MULTILINE,
)


def test_without_a_terminal_each_epoch_is_one_line(capsys, build):
    config = build().config.monitor
    main(["fit", *SHORT, "--trainer.max_epochs=2", "--export_onnx=false"])
    out = capsys.readouterr().out
    found = LINE.findall(out)
    assert [epoch for epoch, *_ in found] == ["1", "2"], out
    values = [float(value) for _, _, value, _ in found]
    assert {name for _, name, *_ in found} == {config.metric}
    assert float(found[1][3]) == (min if config.mode == "min" else max)(values), "the best of all epochs so far"
    assert not re.search(r"\d+%|it/s|\r|\x1b", out), "no bar is drawn into a file"


def test_a_checkpoint_of_the_configuration_does_not_hide_the_projects_own(capsys, build, workspace: Path):
    monitor = build().config.monitor
    worst = {"monitor": monitor.metric, "mode": "max" if monitor.mode == "min" else "min", "dirpath": "worst"}
    own = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": worst}
    (workspace / "own.yaml").write_text(json.dumps({"trainer": {"callbacks": [own]}}))
    main(["fit", "--config=own.yaml", *SHORT, "--trainer.max_epochs=3", "--export_onnx=false"])
    out = capsys.readouterr().out
    best = json.loads(Path("runs/latest/record.json").read_text())["best"][monitor.metric]
    assert f"({monitor.metric} {best:.4f}" in out
    assert float(LINE.findall(out)[-1][3]) == pytest.approx(best, rel=1e-3)


def test_nan_is_never_the_best(build):
    lines = Lines("val/x", "min")
    score = SimpleNamespace(best_model_score=torch.tensor(0.5))
    trainer = SimpleNamespace(checkpoint_callbacks=[score], sanity_checking=False)
    trainer.callback_metrics = {"val/x": torch.tensor(float("nan"))}
    lines.on_validation_end(trainer, None)
    assert lines.known["best"] == 0.5


def test_a_terminal_gets_a_bar_with_metric_best_and_time_left(build, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown: list[dict] = []
    monkeypatch.setattr(Bar, "refresh", lambda self, hard=False: None)
    original = Bar.get_metrics

    def spy(self, trainer, module):
        metrics = original(self, trainer, module)
        shown.append(metrics)
        return metrics

    monkeypatch.setattr(Bar, "get_metrics", spy)
    cli = build("--trainer.max_epochs=2", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1")
    assert isinstance(cli.trainer.progress_bar_callback, Bar)
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    metric = cli.config.monitor.metric
    assert {"train/loss_step", metric, "best", "left"} <= set(shown[-1])
    assert re.fullmatch(r"\d+:\d\d:\d\d", shown[-1]["left"])
    assert "v_num" not in shown[-1]


def test_a_bar_of_the_configuration_takes_the_place_and_none_is_none(build):
    assert isinstance(build().trainer.progress_bar_callback, Lines)
    own = build("--trainer.callbacks+=lightning.pytorch.callbacks.TQDMProgressBar")
    assert type(own.trainer.progress_bar_callback).__name__ == "TQDMProgressBar"
    assert build("--trainer.enable_progress_bar=false").trainer.progress_bar_callback is None


def test_only_rank_zero_speaks(build, capsys, monkeypatch):
    cli = build("--trainer.max_epochs=1", "--trainer.limit_train_batches=1", "--trainer.limit_val_batches=1")
    monkeypatch.setattr(type(cli.trainer), "is_global_zero", False)
    cli.trainer.fit(cli.model, datamodule=cli.datamodule)
    assert "epoch 1/1" not in capsys.readouterr().out


def test_every_command_ends_with_where_things_are_and_what_comes_next(capsys):
    ends = {}
    for command in ("fit", "validate", "test", "predict", "export"):
        main([command, *(SHORT if command == "fit" else [])])
        ends[command] = capsys.readouterr().out.strip().splitlines()
    main(["fit", "--config=configs/debug.yaml"])
    ends["debug"] = capsys.readouterr().out.strip().splitlines()
    for command, lines in ends.items():
        following = NEXT[command] if NEXT[command] in commands() else "--help"
        assert lines[-1] == f"Next: python -m {PACKAGE} {following}"
        if command != "debug":
            path = re.findall(r"runs/[\w./-]+", "\n".join(lines))[-1]
            assert Path(path).exists(), f"{command} names {path}, which is not there"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, "min", 0.1), ""),
        ((0.2, "min", 0.1), ", the target 0.2 is reached"),
        ((0.2, "max", 0.1), ", the target 0.2 is not reached"),
        ((0.2, "max", 0.2), ", the target 0.2 is reached"),
    ],
)
def test_the_target_is_compared_with_what_was_reached(arguments: tuple, words: str):
    assert compare_target(*arguments) == words
