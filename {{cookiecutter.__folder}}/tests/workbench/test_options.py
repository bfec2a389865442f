"""Options that are wrong are answered in one sentence by every command of the workbench."""

import re

import pytest

from {{ cookiecutter.package }}.cli import main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["compare"], "required: runs; compare --help"),
        (["compare", "runs/never", "runs/none"], "runs/never"),
        (["doctor", "--only", "nothing"], "'nothing' .choose from 'configuration'"),
        (["todo", "--nope"], "--nope; todo --help"),
        (["report", "--run", "runs/never"], "runs/never is no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_answered_in_one_sentence(arguments: list[str], told: str, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert end.value.code == 2
    assert line.startswith("error: ")
    assert re.search(told, line), line
