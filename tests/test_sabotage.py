"""L6: the generated tests notice when a practice is taken out. A tenth of the table each time; all: `make sabotage`."""

from pathlib import Path

import pytest
from rendering import turn
from sabotage import harness

PARTS = 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_practice_that_is_taken_out_is_missed(render, tmp_path: Path):
    chosen = harness.entries()[turn(PARTS) :: PARTS]
    results = harness.run(chosen, render, tmp_path, print)
    faults = [f"{result.entry.row}: {result.fault}" for result in results if result.fault]
    assert len(results) == len(chosen) > 0
    assert not faults, "\n".join(faults)


def test_an_edit_that_fits_nowhere_or_twice_is_refused(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\ny = 1\n")
    for old, times in (("= 1", 2), ("= 2", 0)):
        entry = harness.Entry("row", "a.py", "= 3", "test", old)
        assert harness.edit(entry, tmp_path) == f"a.py holds the old text {times} times"
    assert harness.edit(harness.Entry("row", "a.py", "= 3", "test"), tmp_path) == "a.py exists"


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        ({"outcome": "failed", "when": "call", "raised": "AssertionError", "text": "the loss is NaN"}, ""),
        ({"outcome": "failed", "when": "call", "raised": "Failed", "text": "DID NOT RAISE, the loss"}, ""),
        ({"outcome": "passed", "when": "call", "raised": "", "text": ""}, "stays green"),
        ({"outcome": "failed", "when": "collect", "raised": "", "text": "SyntaxError"}, "failed in collect"),
        ({"outcome": "failed", "when": "setup", "raised": "AssertionError", "text": "the loss"}, "failed in setup"),
        ({"outcome": "skipped", "when": "setup", "raised": "Skipped", "text": "no GPU"}, "skipped in setup"),
        ({"outcome": "failed", "when": "call", "raised": "NameError", "text": "the loss"}, "fails by NameError"),
        ({"outcome": "failed", "when": "call", "raised": "AssertionError", "text": "else"}, "does not say"),
    ],
)
def test_only_a_failing_assertion_counts(report: dict, fault: str):
    entry = harness.Entry("row", "a.py", "", "test", says="the loss")
    said = harness.judge(entry, {"reports": [report]})
    assert said.startswith(fault) if fault else not said


def test_a_test_that_did_not_run_does_not_count():
    assert harness.judge(harness.Entry("row", "a.py", "", "test"), {"reports": []})
