"""Answers are carried, migrated or refused, never reset in silence; files of the user's stay theirs."""

import pytest
from fleet_helpers import Make, Project, Run, Template, lines

ANSWER = "{{ cookiecutter.%s }}\n"


def answers(project: Project) -> dict[str, str]:
    return dict(project.state["context"]["cookiecutter"])


def test_new_variable_gets_its_default_and_is_reported(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0")
    project = make(template)
    template.version("v0.2.0", {"logger.txt": ANSWER % "logger"}, logger=["csv", "wandb"])
    said = fleet("update", project.folder)
    assert said.code == 0 and "logger=csv" in said.text
    assert project.read("logger.txt") == "csv\n" and answers(project)["logger"] == "csv"


def test_new_variable_can_be_set(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0")
    project = make(template)
    template.version("v0.2.0", {"logger.txt": ANSWER % "logger"}, logger=["csv", "wandb"])
    assert fleet("update", project.folder, "--set", "loger=wandb").code == 2
    assert fleet("update", project.folder, "--set", "logger=other").code == 2
    assert fleet("update", project.folder, "--set", "logger=wandb").code == 0
    assert project.read("logger.txt") == "wandb\n"


def test_answer_can_be_changed_at_the_same_version(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"task.txt": ANSWER % "task"})
    project = make(template)
    assert fleet("update", project.folder, "--set", "task=text").code == 0
    assert project.read("task.txt") == "text\n" and answers(project)["task"] == "text"


@pytest.mark.parametrize("kept", [True, False], ids=["rule kept", "rule removed later"])
def test_renamed_variable_is_migrated_across_two_versions(
    template: Template, make: Make, fleet: Run, kept: bool
) -> None:
    template.version("v0.1.0", {"p.txt": ANSWER % "precision"}, precision=["16", "32"])
    project = make(template, precision="32")
    rule = {"precision": {"to": "trainer_precision", "map": {"32": "32-true"}}}
    template.version(
        "v0.2.0",
        {"p.txt": ANSWER % "trainer_precision"},
        precision=None,
        trainer_precision=["16-mixed", "32-true"],
        _migrate=rule,
    )
    again = {"trainer_precision": {"to": "number_format"}}
    template.version(
        "v0.3.0",
        {"p.txt": ANSWER % "number_format"},
        trainer_precision=None,
        number_format=["16-mixed", "32-true"],
        _migrate={**rule, **again} if kept else again,
    )
    said = fleet("update", project.folder)
    assert said.code == 0, said.text
    assert "precision=32 is now trainer_precision=32-true" in said.text
    assert project.read("p.txt") == "32-true\n" and answers(project)["number_format"] == "32-true"
    project.commit()
    assert fleet("update", project.folder, "--to", "v0.1.0").code == 0
    assert answers(project)["precision"] == "32", "a downgrade goes the same way back"


def test_map_that_swaps_is_applied_once(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", order=["up", "down"])
    project = make(template)
    template.version("v0.2.0", _migrate={"order": {"map": {"up": "down", "down": "up"}}})
    template.version("v0.3.0")
    assert fleet("update", project.folder).code == 0
    assert answers(project)["order"] == "down"


def test_dropped_variable_is_reported(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", legacy="no")
    project = make(template, legacy="yes")
    template.version("v0.2.0", legacy=None, _migrate={"legacy": {"drop": True}})
    said = fleet("update", project.folder)
    assert said.code == 0 and "legacy: 'yes'" in said.text and "legacy" not in answers(project)


def test_removed_variable_with_an_answer_is_refused_until_given_up(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", precision="16")
    project = make(template, precision="32")
    template.version("v0.2.0", precision=None, trainer_precision="16")
    before = project.snapshot()
    said = fleet("update", project.folder)
    assert said.code == 2 and "precision=32 would be lost" in said.text
    assert "trainer_precision" in said.text and project.snapshot() == before
    flags = ("--set", "trainer_precision=32", "--drop", "precision")
    assert fleet("update", project.folder, *flags).code == 0
    assert answers(project)["trainer_precision"] == "32"


def test_removed_variable_at_its_default_is_dropped(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", where="{{ cookiecutter.project }}-data")
    project = make(template)
    template.version("v0.2.0", where=None)
    said = fleet("update", project.folder)
    assert said.code == 0 and "where: 'demo-data'" in said.text


def test_removed_option_is_refused_with_the_choices(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", logger=["wandb", "csv", "old"])
    project = make(template, logger="old")
    template.version("v0.2.0", logger=["wandb", "csv"])
    before = project.snapshot()
    said = fleet("update", project.folder)
    assert said.code == 2 and "wandb, csv" in said.text and "--set logger=" in said.text
    assert project.snapshot() == before
    assert fleet("update", project.folder, "--set", "logger=csv").code == 0


def test_removed_option_that_the_template_maps(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", logger=["wandb", "old"])
    project = make(template, logger="old")
    template.version("v0.2.0", logger=["wandb", "csv"], _migrate={"logger": {"map": {"old": "csv"}}})
    assert fleet("update", project.folder).code == 0 and answers(project)["logger"] == "csv"


def test_answer_with_braces_and_quotes_stays_as_typed(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"d.txt": ANSWER % "description"}, description="none")
    project = make(template)
    text = 'It\'s {{ not }} {% Jinja %} \\n "ü" 🎉'
    assert fleet("update", project.folder, "--set", f"description={text}").code == 0
    assert project.read("d.txt") == f"{text}\n"
    project.commit()
    template.version("v0.2.0", {"new.txt": "new\n"})
    assert fleet("update", project.folder).code == 0
    assert project.read("d.txt") == f"{text}\n" and answers(project)["description"] == text


def test_user_settings_of_cookiecutter_do_not_leak_in(template: Template, make: Make, fleet: Run, home: object) -> None:
    template.version("v0.1.0", {"a.txt": lines()}, author="Nobody")
    project = make(template)
    (project.folder.parents[1] / "home" / ".cookiecutterrc").write_text(
        "default_context:\n  author: Leaked\n  city: Leaked\n"
    )
    template.version("v0.2.0", {"city.txt": ANSWER % "city"}, city="None")
    assert fleet("update", project.folder).code == 0
    assert project.read("city.txt") == "None\n" and answers(project)["author"] == "Nobody"


def test_each_version_uses_its_own_extension_module(template: Template, make: Make, fleet: Run) -> None:
    code = "from cookiecutter.utils import simple_filter\n\n@simple_filter\ndef shout(text):\n    return text.{}()\n"
    root = {"local_extensions.py": code.format("upper")}
    text = {"a.txt": "{{ cookiecutter.project | shout }}\n"}
    template.version("v0.1.0", text, root, _extensions=["local_extensions.shout"])
    project = make(template)
    assert project.read("a.txt") == "DEMO\n"
    template.version("v0.2.0", {}, {"local_extensions.py": code.format("title")})
    assert fleet("update", project.folder).code == 0
    assert project.read("a.txt") == "Demo\n"


def test_hook_table_change_removes_and_adds_files(template: Template, make: Make, fleet: Run) -> None:
    from fleet_helpers import HOOK

    table = "\nFILES = {}\nfor name in FILES[ANSWERS['task']]:\n    Path(name).unlink()\n"
    first = HOOK + table.format({"vision": ["b.txt"], "text": ["a.txt"]})
    second = HOOK + table.format({"vision": ["a.txt"], "text": ["b.txt"]})
    template.version("v0.1.0", {"a.txt": "a\n", "b.txt": "b\n"}, {"hooks/post_gen_project.py": first})
    project = make(template)
    assert project.has("a.txt") and not project.has("b.txt")
    template.version("v0.2.0", {}, {"hooks/post_gen_project.py": second})
    assert fleet("update", project.folder).code == 0
    assert project.has("b.txt") and not project.has("a.txt")


def test_once_files_are_never_touched_and_their_change_is_said(template: Template, make: Make, fleet: Run) -> None:
    once = ["src/{{ cookiecutter.package }}/{{ cookiecutter.task }}/**", "README.md"]
    folder = "src/{{cookiecutter.package}}/{{cookiecutter.task}}"
    files = {f"{folder}/data.py": lines(), f"{folder}/net.py": "net\n", "README.md": lines()}
    template.version("v0.1.0", {**files, "a.txt": lines()}, _once=once)
    project = make(template)
    mine = {"src/demo/vision/data.py": lines(l3="mine"), "src/demo/vision/net.py": None}
    project.commit(mine)
    changed = {f"{folder}/data.py": lines(l3="theirs"), f"{folder}/net.py": "changed\n"}
    template.version("v0.2.0", {**changed, f"{folder}/new.py": "new\n", "README.md": None, "a.txt": "a\n"})
    said = fleet("update", project.folder)
    assert said.code == 0, said.text
    assert project.read("src/demo/vision/data.py") == lines(l3="mine")
    assert not project.has("src/demo/vision/net.py") and project.read("README.md") == lines()
    assert project.read("src/demo/vision/new.py") == "new\n" and project.read("a.txt") == "a\n"
    assert "src/demo/vision/data.py: changed" in said.text and "README.md: removed" in said.text
    assert "fleet diff --from v0.1.0 --to v0.2.0" in said.text
    flags = ("--project", project.folder, "--from", "v0.1.0", "--to", "v0.2.0")
    shown = fleet("diff", *flags, "src/demo/vision/data.py").text
    assert "+theirs" in shown and "README" not in shown


def test_once_file_that_the_template_renamed_moves_with_the_users_content(
    template: Template, make: Make, fleet: Run
) -> None:
    template.version("v0.1.0", {"yours/a.py": lines()}, _once=["yours/**"])
    project = make(template)
    project.commit({"yours/a.py": "mine\n"})
    files = {"yours/a.py": None, "yours/b.py": "theirs\n"}
    template.version("v0.2.0", files, _renames={"yours/a.py": "yours/b.py"})
    said = fleet("update", project.folder)
    assert said.code == 0 and "yours/a.py -> yours/b.py" in said.text
    assert project.read("yours/b.py") == "mine\n" and not project.has("yours/a.py")


def test_skip_in_the_state_file_keeps_a_file_out_of_updates(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"ci/a.yml": lines(), "b.txt": "b\n"})
    project = make(template)
    state = project.read(".cruft.json").replace('"skip": []', '"skip": ["ci"]')
    project.commit({".cruft.json": state})
    template.version("v0.2.0", {"ci/a.yml": "new\n", "ci/b.yml": "new\n", "b.txt": "new\n"})
    assert fleet("update", project.folder).code == 0
    assert project.read("ci/a.yml") == lines() and not project.has("ci/b.yml")
    assert project.read("b.txt") == "new\n" and project.state["skip"] == ["ci"]


def test_changelog_of_every_version_passed(template: Template, make: Make, fleet: Run) -> None:
    log = (
        "# Changelog\n\n## [Unreleased]\n\n## [0.3.0] - 2026-03-01\n\n### Changed\n- x\n\n"
        "### An existing project must\n\n- run `make three`\n\n## 0.2.1\n### An existing project must\n\n- nothing\n\n"
        "## 0.2.0\n### What an existing project must do\n\nRun `make two`.\n### Fixed\n- not this\n\n"
        "## v0.1.0\n### What an existing project must do\nRun `make one`.\n"
    )
    template.version("v0.1.0")
    project = make(template)
    template.version("v0.2.0")
    template.version("v0.2.1")
    template.version("v0.3.0", {}, {"CHANGELOG.md": log})
    said = fleet("update", project.folder).text
    assert "What v0.2.0 asks" in said and "Run `make two`." in said
    assert "run `make three`" in said and "v0.2.1" not in said and said.index("two") < said.index("three")
    assert "make one" not in said and "not this" not in said
