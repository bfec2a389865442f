"""The user edits, deletes, renames or moves; the template changes too: nothing is silently lost."""

import pytest
from fleet_helpers import HOOK, MARKERS, Make, Run, Template, git, lines


def test_untouched_project_gets_every_change(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines(), "gone.txt": "old\n", "old/name.txt": lines()})
    project = make(template)
    changed = {"a.txt": lines(l3="three"), "gone.txt": None, "old/name.txt": None, "new/name.txt": lines()}
    template.version("v0.2.0", {**changed, "added.txt": "{{ cookiecutter.package }}\n"})
    said = fleet("update", project.folder)
    assert said.code == 0 and "from v0.1.0 to v0.2.0" in said.text
    assert project.read("a.txt") == lines(l3="three") and project.read("added.txt") == "demo\n"
    assert not project.has("gone.txt") and not project.has("old") and project.has("new/name.txt")
    assert project.state["tag"] == "v0.2.0" and project.state["context"]["cookiecutter"]["package"] == "demo"
    assert git(project.folder, "diff", "--name-only") == "", "all is staged"
    assert fleet("update", project.folder).code == 2, "an update on top of an uncommitted one"
    project.commit()
    assert "nothing to do" in fleet("update", project.folder).text


@pytest.mark.parametrize(("place", "clean"), [("l15", True), ("l4", False), ("l3", False)])
def test_distant_lines_merge_and_same_or_adjacent_ones_conflict(
    template: Template, make: Make, fleet: Run, place: str, clean: bool
) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = make(template)
    project.commit({"a.txt": lines(**{place: "mine"})})
    template.version("v0.2.0", {"a.txt": lines(l3="theirs")})
    said = fleet("update", project.folder)
    text = project.read("a.txt")
    assert "mine\n" in text and "theirs\n" in text
    assert said.code == (0 if clean else 1)
    if not clean:
        assert project.unmerged() == ["a.txt"]
        assert all(f"\n{marker}" in text for marker in MARKERS), "zdiff3 shows the base as well"
        assert "<<<<<<< yours\n" in text and ">>>>>>> template v0.2.0\n" in text
        assert "||||||| template v0.1.0\n" in text
        assert "a.txt: both changed the same lines" in said.text


def test_both_made_the_same_change(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = make(template)
    project.commit({"a.txt": lines(l3="same")})
    template.version("v0.2.0", {"a.txt": lines(l3="same")})
    assert fleet("update", project.folder).code == 0
    assert project.read("a.txt") == lines(l3="same")


def test_user_deleted_and_the_template_changed_stays_deleted_and_is_reported(
    template: Template, make: Make, fleet: Run
) -> None:
    template.version("v0.1.0", {"a.txt": lines(), "b.txt": "b\n"})
    project = make(template)
    project.commit({"a.txt": None})
    template.version("v0.2.0", {"a.txt": lines(l3="three")})
    said = fleet("update", project.folder)
    assert said.code == 0 and not project.has("a.txt")
    assert "left so" in said.text and "  a.txt\n" in said.text


def test_user_renamed_and_the_template_changed(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = make(template)
    project.commit({"a.txt": None, "mine.txt": lines()})
    template.version("v0.2.0", {"a.txt": lines(l3="three")})
    assert fleet("update", project.folder).code == 0
    assert project.read("mine.txt") == lines(l3="three") and not project.has("a.txt")


def test_user_moved_and_edited_and_the_template_changed(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"src/a.txt": lines()})
    project = make(template)
    project.commit({"src/a.txt": None, "lib/deep/b.txt": lines(l20="mine")})
    template.version("v0.2.0", {"src/a.txt": lines(l3="three")})
    assert fleet("update", project.folder).code == 0
    assert project.read("lib/deep/b.txt") == lines(l3="three", l20="mine")


def test_template_renamed_a_file_that_the_user_edited(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = make(template)
    project.commit({"a.txt": lines(l20="mine")})
    template.version("v0.2.0", {"a.txt": None, "b.txt": lines(l3="three")})
    assert fleet("update", project.folder).code == 0
    assert project.read("b.txt") == lines(l3="three", l20="mine") and not project.has("a.txt")


def test_template_rewrote_and_declared_a_renamed_file(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"{{cookiecutter.package}}/a.txt": "one\ntwo\nthree\n"})
    project = make(template)
    project.commit({"demo/a.txt": "one\ntwo\nthree\nmine\n"})
    renames = {"{{ cookiecutter.package }}/a.txt": "{{ cookiecutter.package }}/b.txt"}
    files = {"{{cookiecutter.package}}/a.txt": None, "{{cookiecutter.package}}/b.txt": "ONE\n2\n3\n4\n5\n"}
    template.version("v0.2.0", files, _renames=renames)
    said = fleet("update", project.folder)
    assert said.code == 1 and "demo/a.txt -> demo/b.txt" in said.text
    assert "mine" in project.read("demo/b.txt") and not project.has("demo/a.txt")


def test_template_deleted_a_file_that_the_user_edited(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines(), "b.txt": "b\n"})
    project = make(template)
    project.commit({"a.txt": lines(l20="mine")})
    template.version("v0.2.0", {"a.txt": None})
    said = fleet("update", project.folder)
    assert said.code == 1 and project.unmerged() == ["a.txt"]
    assert project.read("a.txt") == lines(l20="mine")
    assert "the template deleted it, you changed it" in said.text


def test_template_chmodded_a_file_that_the_user_edited(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"run.sh": lines()})
    project = make(template)
    project.commit({"run.sh": lines(l20="mine")})
    path = next(template.folder.glob("*/run.sh"))
    path.chmod(0o755)
    template.version("v0.2.0")
    assert fleet("update", project.folder).code == 0
    assert project.read("run.sh") == lines(l20="mine")
    assert (project.folder / "run.sh").stat().st_mode & 0o100


def test_both_added_the_same_file(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"b.txt": "b\n"})
    project = make(template)
    project.commit({"same.txt": lines(), "other.txt": "mine\n"})
    template.version("v0.2.0", {"same.txt": lines(), "other.txt": "theirs\n"})
    said = fleet("update", project.folder)
    assert said.code == 1 and project.unmerged() == ["other.txt"]
    assert "mine\n" in project.read("other.txt") and "theirs\n" in project.read("other.txt")
    assert project.read("same.txt") == lines()


def test_binary_changed_on_both_sides_keeps_yours_and_conflicts(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.bin": b"\0one" * 50})
    project = make(template)
    project.commit({"a.bin": b"\0mine" * 50})
    template.version("v0.2.0", {"a.bin": b"\0theirs" * 50})
    said = fleet("update", project.folder)
    assert said.code == 1 and project.unmerged() == ["a.bin"]
    assert (project.folder / "a.bin").read_bytes() == b"\0mine" * 50
    git(project.folder, "checkout", "--theirs", "a.bin")
    assert (project.folder / "a.bin").read_bytes() == b"\0theirs" * 50
    assert "checkout --theirs" in said.text


def test_text_made_binary_by_the_template_and_edited_by_the_user(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.dat": lines(), "b.dat": lines()})
    project = make(template)
    project.commit({"a.dat": lines(l3="mine")})
    template.version("v0.2.0", {"a.dat": b"\0bin" * 99, "b.dat": b"\0bin" * 99})
    said = fleet("update", project.folder)
    assert said.code == 1 and project.unmerged() == ["a.dat"]
    assert project.read("a.dat") == lines(l3="mine")
    assert (project.folder / "b.dat").read_bytes() == b"\0bin" * 99


def test_crlf_file_of_the_template_keeps_its_line_ends(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.bat": lines().replace("\n", "\r\n")})
    project = make(template)
    project.commit({"a.bat": lines(l20="mine").replace("\n", "\r\n")})
    template.version("v0.2.0", {"a.bat": lines(l3="three").replace("\n", "\r\n")})
    assert fleet("update", project.folder).code == 0
    assert project.read("a.bat") == lines(l3="three", l20="mine").replace("\n", "\r\n")


def test_file_that_the_user_turned_into_crlf_still_merges(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = make(template)
    project.commit({"a.txt": lines(l20="mine").replace("\n", "\r\n")})
    template.version("v0.2.0", {"a.txt": lines(l3="three")})
    assert fleet("update", project.folder).code == 0
    assert project.read("a.txt") == lines(l3="three", l20="mine").replace("\n", "\r\n")


def test_reformatted_file_conflicts_and_loses_nothing(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines()})
    project = make(template)
    formatted = "".join(f"    {line}\n" for line in lines().splitlines())
    project.commit({"a.txt": formatted})
    template.version("v0.2.0", {"a.txt": lines(l3="three")})
    said = fleet("update", project.folder)
    assert said.code == 1 and "a.txt" in said.text
    assert set(formatted.splitlines()) <= set(project.read("a.txt").splitlines())
    assert "three" in project.read("a.txt")


def links(**targets: str) -> dict[str, str | bytes | None]:
    """Return a hook that makes symlinks: cookiecutter follows those of a template."""
    calls = "".join(f"Path({name!r}).symlink_to({target!r})\n" for name, target in targets.items())
    return {"hooks/post_gen_project.py": HOOK + calls}


def test_symlink_and_executable_files(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"a.txt": lines(), "run.sh": "#!/bin/sh\n"}, links(link="a.txt"))
    project = make(template)
    files = {"b.txt": "b\n", "run.sh": "#!/bin/bash\n", "new.sh": "#!/bin/sh\n"}
    template.version("v0.2.0", {**files}, links(link="b.txt", link2="a.txt"))
    assert fleet("update", project.folder).code == 0
    assert (project.folder / "link").readlink().name == "b.txt"
    assert (project.folder / "link2").is_symlink()
    for name in ("run.sh", "new.sh"):
        assert (project.folder / name).stat().st_mode & 0o100, name


def test_symlink_that_both_changed(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"b.txt": "b\n"}, links(link="a"))
    project = make(template)
    project.commit({"link": "->mine"})
    template.version("v0.2.0", {}, links(link="theirs"))
    said = fleet("update", project.folder)
    assert said.code == 1 and "link" in project.unmerged()
    assert (project.folder / "link").readlink().name == "mine"


def test_file_name_with_spaces_and_non_ascii(template: Template, make: Make, fleet: Run) -> None:
    name = "docs/größe und länge 版本.txt"
    template.version("v0.1.0", {name: lines()})
    project = make(template)
    project.commit({name: lines(l20="mine")})
    template.version("v0.2.0", {name: lines(l3="three"), "neu ü.txt": "ü\n"})
    assert fleet("update", project.folder).code == 0
    assert project.read(name) == lines(l3="three", l20="mine") and project.read("neu ü.txt") == "ü\n"


def test_ignored_placeholder_files_arrive(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {".gitignore": "data/\n", "data/.gitkeep": ""})
    project = make(template)
    template.version("v0.2.0", {"data/raw/.gitkeep": "", "data/.gitkeep": "kept\n"})
    assert fleet("update", project.folder).code == 0
    assert project.has("data/raw/.gitkeep") and project.read("data/.gitkeep") == "kept\n"


def test_file_on_one_side_and_folder_on_the_other_is_never_lost(template: Template, make: Make, fleet: Run) -> None:
    template.version("v0.1.0", {"b.txt": "b\n"})
    project = make(template)
    project.commit({"thing": "mine\n"})
    template.version("v0.2.0", {"thing/inner.txt": "theirs\n"})
    said = fleet("update", project.folder)
    assert said.code in (1, 2)
    kept = "".join(p.read_text() for p in project.folder.rglob("thing*") if p.is_file())
    assert "mine\n" in kept and "Traceback" not in said.text
