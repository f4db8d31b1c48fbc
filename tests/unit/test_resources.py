"""Where the project's own things are: a user's word, the checkout, the package, the PATH; and what the doctor says."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crosslayer import doctor, resources
from crosslayer.campaign import provenance
from crosslayer.process import run_command
from crosslayer.testbed import namespaces
from crosslayer.testbed.errors import TestbedError

LIBRARY = Path(resources.__file__).parent
VARIABLES = {name: thing.variable for name, thing in resources.RESOURCES.items()}
OURS = [name for name, thing in resources.RESOURCES.items() if thing.in_checkout]
PROGRAMS = [name for name, thing in resources.RESOURCES.items() if thing.in_checkout and thing.program]

GIT = shutil.which("git")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No variable, no checkout, nothing on the PATH."""
    for variable in (*VARIABLES.values(), "CROSSLAYER_SHARE", "CROSSLAYER_REVISION"):
        monkeypatch.delenv(variable, raising=False)
    for folder in ("bin", "here"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(resources, "home", lambda: None)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def tree(root: Path) -> Path:
    """A folder with everything in it where a checkout has it."""
    (root / "lib" / "crosslayer").mkdir(parents=True)
    for name in OURS:
        path = root / resources.RESOURCES[name].in_checkout
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    return root


@pytest.mark.parametrize("name", OURS)
def test_a_users_word_then_the_checkout_then_the_package(
    name: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thing = resources.RESOURCES[name]
    with pytest.raises(resources.ResourceError, match="was not found") as caught:
        resources.locate(name)
    assert caught.value.next_step

    share = tree(nowhere / "share")
    monkeypatch.setenv("CROSSLAYER_SHARE", str(share))
    assert resources.locate(name) == resources.Location(share / thing.in_checkout, "the package")

    work = tree(nowhere / "work")
    below = work / "notebooks" / "mine"
    below.mkdir(parents=True)
    for here in (work, below):
        monkeypatch.chdir(here)
        assert resources.locate(name) == resources.Location(work / thing.in_checkout, "this checkout")

    chosen = nowhere / "told"
    chosen.touch(mode=0o755)
    monkeypatch.setenv(thing.variable, str(chosen))
    assert resources.locate(name) == resources.Location(chosen, thing.variable)


@pytest.mark.parametrize("name", VARIABLES)
def test_a_users_word_is_never_passed_over(name: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree(nowhere / "work"))
    monkeypatch.setenv(VARIABLES[name], "/nonexistent/thing")
    with pytest.raises(resources.ResourceError, match=f"/nonexistent/thing: cannot be read.*Unset {VARIABLES[name]}"):
        resources.locate(name)


@pytest.mark.parametrize("name", [*PROGRAMS, "named"])
def test_programs_are_located_on_the_path_last(name: str, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = nowhere / "bin" / resources.RESOURCES[name].program
    program.touch(mode=0o755)
    assert resources.locate(name) == resources.Location(program, "the PATH")
    if name in PROGRAMS:
        monkeypatch.chdir(tree(nowhere / "work"))
        assert resources.locate(name).source == "this checkout"


def test_programs_of_the_system_folders_are_located_without_the_path(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    system = nowhere / "sbin"
    system.mkdir()
    monkeypatch.setattr(resources, "_SYSTEM_FOLDERS", (str(system),))
    assert resources.find_program("tc") is None
    for name in ("tc", "named"):
        (system / name).write_text("#!/bin/sh\necho runs\n", encoding="utf-8")
        (system / name).chmod(0o755)
    assert resources.find_program("tc") == namespaces.tool("tc") == str(system / "tc")
    assert resources.locate("named").path == system / "named"
    assert run_command(["tc"]) == run_command(["tc"], {}) == 0
    assert capfd.readouterr().out == "runs\n" * 2
    assert next(finding for finding in doctor._tools() if finding.item == "tc").state is doctor.State.OK

    (nowhere / "bin" / "tc").symlink_to(system / "tc")
    assert resources.find_program("tc") == str(nowhere / "bin" / "tc"), "the user's PATH comes first"


def test_a_tool_that_is_missing_is_named_with_its_package(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_SYSTEM_FOLDERS", ())
    for name, package in (("tc", "iproute2"), ("nsenter", "util-linux")):
        with pytest.raises(TestbedError, match=f"no `{name}` on this machine. Install {package} "):
            namespaces.tool(name)
    with pytest.raises(TestbedError, match="no `nsenter` on this machine"):
        namespaces.command_in("client", ["true"])


@pytest.mark.slow
def test_no_other_part_of_the_library_searches_or_expects_programs_on_the_path() -> None:
    """By its name alone a program is found only where PATH has its folder."""
    bare = {*namespaces._PACKAGES, "git"}
    for file in LIBRARY.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert file.name == "resources.py" or not any(ast.unparse(call.func) == "shutil.which" for call in calls), file
        of_the_wire = [word for call in calls if ast.unparse(call.func) == "self._guest.run" for word in call.args]
        for node in ast.walk(tree):
            if isinstance(node, ast.List) and node.elts and node not in of_the_wire:
                first = node.elts[0]
                assert not (isinstance(first, ast.Constant) and first.value in bare), f"{file}:{node.lineno}"


def test_a_program_that_is_not_built_is_not_taken(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tree(nowhere / "work")
    (work / resources.RESOURCES["server"].in_checkout).unlink()
    monkeypatch.chdir(work)
    with pytest.raises(resources.ResourceError, match="make setup"):
        resources.locate("server")
    monkeypatch.setenv("CROSSLAYER_SHARE", str(tree(nowhere / "share")))
    assert resources.locate("server").source == "the package"


def test_the_package_s_own_checkout_counts_outside_any_other(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, others = tree(nowhere / "ours"), tree(nowhere / "theirs")
    monkeypatch.setattr(resources, "home", lambda: ours)
    assert resources.checkout() == ours
    monkeypatch.chdir(others)
    assert resources.checkout() == others


def test_the_revision_is_that_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert provenance.revision() == {"revision": None, "clean": None}
    monkeypatch.setenv("CROSSLAYER_REVISION", "abc-dirty")
    assert provenance.revision() == {"revision": "abc-dirty", "clean": False}
    monkeypatch.setattr(resources, "home", lambda: Path(__file__).parents[2])
    assert provenance.revision()["revision"] != "abc-dirty"


def finding_of(item: str) -> doctor.Finding:
    return next(finding for finding in doctor._own() if finding.item == item)


def test_the_doctor_says_which_is_used(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding_of("crosslayer-server").state is doctor.State.MISSING
    work = tree(nowhere / "work")
    monkeypatch.chdir(work)
    assert finding_of("crosslayer-server").detail == f"{work}/build/crosslayer-server (this checkout)"
    assert finding_of("sites").detail == f"{work}/sites (this checkout)"
    assert finding_of("library").detail.endswith("(installed)")

    source = work / "emulation" / "server.go"
    source.touch()
    os.utime(work / "build" / "crosslayer-server", (0, 0))
    old = finding_of("crosslayer-server")
    assert (old.state, "older than" in old.detail) == (doctor.State.NOTE, True)
    assert "make setup" in old.way_out


def test_the_doctor_sends_to_make_setup_for_what_that_installs(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_SYSTEM_FOLDERS", ())
    script = (LIBRARY.parents[1] / "setup" / "system-packages").read_text(encoding="utf-8")
    for finding in doctor._tools():
        installed = any(re.search(rf"^ *need \S+( .*)? {name}( |$)", script, re.MULTILINE) for name in [finding.item])
        if finding.item != "tc" and finding.item != "nsenter":  # in the packages of `ip` and `unshare`
            assert ("make setup" in finding.way_out) is installed, finding


@pytest.mark.parametrize(
    ("ending", "value"),
    [
        ("apparmor_restrict_unprivileged_userns", "1"),
        ("unprivileged_userns_clone", "0"),
        ("max_user_namespaces", "0"),
        ("nothing", ""),
    ],
)
def test_the_way_to_namespaces_is_sentences(monkeypatch: pytest.MonkeyPatch, ending: str, value: str) -> None:
    monkeypatch.setattr(resources, "find_program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(namespaces, "refused", lambda unshare: "unshare failed: Operation not permitted")
    monkeypatch.setattr(doctor, "_read", lambda path: value if path.endswith(ending) else "")
    assert ". Or `make guest`: " in doctor._namespaces(guest=False).way_out


def test_the_doctor_compares_what_is_installed(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tree(nowhere / "work")
    monkeypatch.chdir(work)
    monkeypatch.setattr(doctor, "_installed", lambda: {"numpy": "2.0", "polars": "1.40"})
    assert "as in" not in doctor._python().detail

    lock, pinned = work / "requirements.lock", work / "setup" / "pinned.in"
    pinned.parent.mkdir()
    lock.write_text("numpy==2.0 \\\n    --hash=x\npolars==1.44 \\\n", encoding="utf-8")
    near = doctor._python()
    assert (near.state, near.detail.endswith("differs from requirements.lock: polars 1.40 (1.44)")) == (
        doctor.State.NOTE,
        True,
    )
    pinned.write_text("polars==1.40\n", encoding="utf-8")
    assert doctor._python().detail.endswith("packages as in setup/pinned.in")
    lock.write_text("numpy==1.9 ; python_version < '3.12' \\\nnumpy==2.0 \\\npolars==1.40 \\\n", encoding="utf-8")
    assert doctor._python().detail.endswith("packages as in requirements.lock")


def test_the_doctors_last_line_says_which_way_it_goes_and_how_to_get_the_other() -> None:
    netem, uml = (doctor.Finding(item, doctor.State.OK, "") for item in ("netem", "uml"))
    no_netem = doctor.Finding("netem", doctor.State.NOTE, "")
    no_uml = doctor.Finding("uml", doctor.State.MISSING, "", "Use `nix develop .#uml`.")
    assert "over the netem of its kernel. " in doctor.verdict([netem, uml])
    guest = doctor.verdict([no_netem, uml])
    assert "in a User-Mode Linux guest" in guest
    assert "`crosslayer report data/raw/NAME`" in guest
    shown = doctor.verdict([no_netem, no_uml])
    assert "cannot measure (uml): it shows the committed campaigns" in shown
    assert shown.endswith("To measure: Use `nix develop .#uml`.")


def test_a_checkout_is_known_by_what_is_in_it(nowhere: Path) -> None:
    assert resources.checkout() is None
    root = Path(__file__).parents[2]
    assert resources._is_checkout(root)


@pytest.mark.skipif(GIT is None, reason="git is not installed")
@pytest.mark.parametrize(
    ("changed", "clean"),
    [("mine.toml", True), ("pages/mine/page.json", True), ("lib/new.py", False), ("README.md", False)],
)
def test_files_of_a_user_are_no_changes_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, clean: bool
) -> None:
    assert GIT is not None
    monkeypatch.setenv("PATH", str(Path(GIT).parent))
    checkout = tmp_path / "checkout"
    (checkout / "lib").mkdir(parents=True)
    (checkout / "README.md").write_text("text")
    git = [GIT, "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    (checkout / changed).parent.mkdir(parents=True, exist_ok=True)
    (checkout / changed).write_text("other text")
    monkeypatch.setattr(resources, "home", lambda: checkout)
    assert provenance.revision()["clean"] is clean
