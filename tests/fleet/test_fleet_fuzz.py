"""Fifty random histories; `python bench/fleet_fuzz.py --cases 1000` runs more."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from fleet_fuzz import Case, renderer, run_case


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 50, 10))
def test_random_histories_lose_nothing(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "unused")  # each case sets its own, and this puts it back
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    renderer.cache_clear()
    faults = [fault for seed in range(first, first + 10) for fault in run_case(seed)[3]]
    assert not faults


def test_the_judge_notices_a_lost_line_and_an_unsaid_change() -> None:
    from fleet.report import Report

    case = next(c for c in map(Case, range(100)) if "edit" in c.theirs.told and "edit" in c.ours.told)
    found = case.faults(case.ours.files, {}, Report("x", "merged"), [])
    assert any("user's line is lost" in fault for fault in found)
    found = case.faults(case.ours.files, case.ours.files, Report("x", "merged"), [])
    assert any("template" in fault for fault in found)
