"""Trainings killed with SIGKILL at random moments end, once resumed, as those that never stopped."""

import importlib.util
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("bench_kill", Path(__file__).parents[1] / "bench" / "kill.py")
assert SPEC is not None and SPEC.loader is not None
kill = importlib.util.module_from_spec(SPEC)
sys.modules["bench_kill"] = kill
SPEC.loader.exec_module(kill)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_killed_runs_survive_and_are_equal_to_the_bit(tmp_path: Path):
    counts = kill.measure(kill.render(tmp_path / "project"), tmp_path / "work", kills=20, seed=1)
    assert sum(found[0] for found in counts.values()) >= 20
    for variant, (kills, survived, same) in counts.items():
        assert kills, f"{variant} was never killed"
        assert survived == same == kills, f"{variant}: of {kills} kills {survived} survived, {same} ended bit-equal"
