"""What can be checked of the flake without Nix: its lock, hashes, tools, scripts and versions."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import json
import os
import pty
import re
import shutil
import stat
import struct
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from crosslayer import resources

ROOT = Path(__file__).parents[2]
NIX = ROOT / "nix"
LIBRARY = sorted((ROOT / "lib" / "crosslayer").rglob("*.py"))


def load(path: Path) -> ModuleType:
    """Import a script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The lock


def test_lock_has_one_input_pinned_by_revision_and_hash() -> None:
    lock = json.loads((ROOT / "flake.lock").read_text(encoding="utf-8"))
    assert lock["version"] == 7
    assert lock["nodes"]["root"] == {"inputs": {"nixpkgs": "nixpkgs"}}
    assert set(lock["nodes"]) == {"root", "nixpkgs"}
    source = {"owner": "NixOS", "repo": "nixpkgs", "type": "github"}
    assert lock["nodes"]["nixpkgs"]["locked"] == source | {
        "lastModified": 1787101114,
        "narHash": "sha256-gwrPcFf/rDjHPaVflbDZ040ZDmBTRj/7+s8ZmE2SaIM=",
        "rev": "b18a4b905f8d028dc4476412e6d6891728695379",
    }
    original = lock["nodes"]["nixpkgs"]["original"]
    assert original == source | {"ref": "nixos-26.05"}
    url = f"{original['type']}:{original['owner']}/{original['repo']}/{original['ref']}"
    assert f'inputs.nixpkgs.url = "{url}";' in (ROOT / "flake.nix").read_text(encoding="utf-8")


# Hashes


def nar_hash(path: Path) -> str:
    """SHA-256 of a path as a Nix archive, as `nix hash path` prints it."""
    digest = hashlib.sha256()
    for piece in nar(path):
        digest.update(piece)
    return f"sha256-{base64.b64encode(digest.digest()).decode()}"


def nar(path: Path) -> Iterator[bytes]:
    """A path serialised as a Nix archive: names sorted, times and owners left out."""
    yield text("nix-archive-1")
    yield from node(path)


def text(value: str | bytes) -> bytes:
    data = os.fsencode(value)
    return struct.pack("<Q", len(data)) + data + bytes(-len(data) % 8)


def node(path: Path) -> Iterator[bytes]:
    mode = path.lstat().st_mode
    yield text("(") + text("type")
    if stat.S_ISLNK(mode):
        yield text("symlink") + text("target") + text(bytes(path.readlink()))
    elif stat.S_ISREG(mode):
        yield text("regular")
        if mode & stat.S_IXUSR:
            yield text("executable") + text("")
        yield text("contents") + text(path.read_bytes())
    else:
        yield text("directory")
        for child in sorted(path.iterdir(), key=lambda child: os.fsencode(child.name)):
            yield text("entry") + text("(") + text("name") + text(child.name) + text("node")
            yield from node(child)
            yield text(")")
    yield text(")")


def test_nar_hash_is_that_of_nix(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "b.txt").write_text("two\n", encoding="utf-8")
    (tree / "sub" / "run").write_text("#!/bin/sh\n", encoding="utf-8")
    (tree / "sub" / "run").chmod(0o755)
    (tree / "a").symlink_to("b.txt")
    (tree / "B").write_bytes(b"")
    # Printed by `nix hash path` 2.34 for this tree.
    assert nar_hash(tree) == "sha256-INd+/Z4/9u4yqiJaqkadMf8zsHAJWJZyztZpovTs1rM="


OUT_OF_REACH = re.compile(
    r"dial tcp|lookup |no such host|connection refused|proxyconnect|i/o timeout|TLS handshake|40[34] |"
    r"module lookup disabled|requires go >="
)


@pytest.mark.slow
def test_vendor_hash_is_that_of_go_mod_vendor(tmp_path: Path) -> None:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go") or shutil.which(ROOT / ".venv" / "bin" / "go")
    if go is None:
        pytest.skip("there is no Go on this machine")
    copy = tmp_path / "emulation"
    shutil.copytree(ROOT / "emulation", copy, ignore=shutil.ignore_patterns("vendor"))
    done = subprocess.run(
        [go, "mod", "vendor"],
        cwd=copy,
        env=os.environ | {"GOFLAGS": "", "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and OUT_OF_REACH.search(done.stderr):
        pytest.skip(f"the Go modules are out of reach: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    written = re.findall(r'vendorHash = "([^"]+)"', (NIX / "go.nix").read_text(encoding="utf-8"))
    assert written == [nar_hash(copy / "vendor")]


def test_every_program_of_the_module_is_built() -> None:
    written = re.findall(r'program "([a-z-]+)"', (NIX / "go.nix").read_text(encoding="utf-8"))
    assert sorted(written) == sorted(path.name for path in (ROOT / "emulation" / "cmd").iterdir())


# Tools and variables


def called_programs() -> set[str]:
    """Names of the programs the library starts or looks for on the PATH."""
    names: set[str] = set()
    for path in LIBRARY:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        commands: list[ast.expr] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if function in ("find_program", "tool", "_real"):
                    names |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
                elif function in ("run", "Popen", "command_in"):
                    commands += node.args
            elif isinstance(node, ast.FunctionDef) and node.name == "command_in":
                commands += [line.value for line in node.body if isinstance(line, ast.Return) and line.value]
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_TOOLS":
                names |= set(ast.literal_eval(node.value))
        named = {command.id for command in started(commands) if isinstance(command, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in named:
                commands.append(node.value)
        for command in started(commands):
            if isinstance(command, ast.Constant) and isinstance(command.value, str):
                names.add(command.value)
    # Found by variables instead, or whatever the user asks for.
    return {name for name in names if re.fullmatch(r"[a-z][a-z0-9.-]*", name)} - {
        "chromedriver",
        "linux",
        "linux.uml",
        "sbatch",
    }


def started(commands: list[ast.expr]) -> Iterator[ast.expr]:
    """First words of command lines, and what is run after `--` in them; names where a variable holds the line."""
    for command in commands:
        if isinstance(command, ast.Name):
            yield command
        if not isinstance(command, ast.List) or not command.elts:
            continue
        first = command.elts[0]
        yield first.value if isinstance(first, ast.Starred) else first
        arguments = [word.value if isinstance(word, ast.Constant) else None for word in command.elts]
        if "--" in arguments[:-1]:
            yield command.elts[arguments.index("--") + 1]


LISTED: dict[str, Any] = json.loads((NIX / "packages.json").read_text(encoding="utf-8"))


def commands_of(*purposes: str) -> set[str]:
    return {command for purpose in purposes for commands in LISTED["tools"][purpose].values() for command in commands}


@pytest.mark.slow
def test_every_program_the_library_starts_is_in_the_shell() -> None:
    called = called_programs()
    assert {"unshare", "nsenter", "tc", "ip", "git"} <= called, "the search itself no longer works"
    assert called - commands_of("measuring", "looking") == set()


@pytest.mark.slow
def test_every_tool_of_the_shell_is_called_somewhere() -> None:
    assert commands_of("measuring") - called_programs() == set()
    library = "".join(path.read_text(encoding="utf-8") for path in LIBRARY)
    scripts = "".join(
        p.read_text(encoding="utf-8")
        for p in [*filter(Path.is_file, (ROOT / "setup").iterdir()), NIX / "checks.nix", NIX / "go.nix"]
    )
    for command in commands_of("looking"):
        assert re.search(rf"\b{command}\b", library), f"nothing tells the user of {command}"
    for command in commands_of("developing"):
        assert re.search(rf"\b{command}\b", scripts), f"no check runs {command}"


def test_the_flake_sets_variables_the_library_reads() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in LIBRARY)
    read = set(re.findall(r"""["'](CROSSLAYER_[A-Z_]+)["']""", text))
    written = set(re.findall(r"(CROSSLAYER_[A-Z_]+) =", (NIX / "programs.nix").read_text(encoding="utf-8")))
    assert written <= read
    # What a checkout has itself, it must go on having in the shell: that is the user's to set.
    assert written & {thing.variable for thing in resources.RESOURCES.values() if thing.in_checkout} == set()


def test_the_package_has_everything_a_checkout_has() -> None:
    programs = (NIX / "programs.nix").read_text(encoding="utf-8")
    share = programs[programs.index("crosslayer-share") : programs.index("variables = {")]
    # The guest's kernel is built from source: the shell `guest` has it on its PATH. Every shell has nixpkgs' dnsproxy.
    for thing in (thing for name, thing in resources.RESOURCES.items() if name not in ("kernel", "dnsproxy")):
        for part in Path(thing.in_checkout).parts[-1:]:
            assert part in share or part.replace("crosslayer-", "go.") in share


@pytest.mark.parametrize("below", [".", "notebooks", "nowhere"])
def test_the_shell_takes_the_checkouts_library_and_nothing_of_the_hosts(tmp_path: Path, below: str) -> None:
    hook = re.search(r"shellHook = ''(.*?)'';", (NIX / "shell.nix").read_text(encoding="utf-8"), re.DOTALL)
    assert hook is not None
    checkout = tmp_path / "checkout"
    (checkout / "lib" / "crosslayer").mkdir(parents=True)
    here = tmp_path / "elsewhere" if below == "nowhere" else checkout / below
    here.mkdir(exist_ok=True)
    output = subprocess.run(
        ["bash", "-euc", f'{hook[1]}\necho "${{PYTHONPATH-none}}"'],
        cwd=here,
        env=os.environ | {"PYTHONPATH": "/of/the/host"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == ("none" if below == "nowhere" else f"{checkout}/lib")


def test_a_kernel_of_the_users_own_does_not_win() -> None:
    assert 'JUPYTER_PREFER_ENV_PATH = "1";' in (NIX / "programs.nix").read_text(encoding="utf-8")


def test_sources_name_files_that_are_there() -> None:
    sources = (NIX / "sources.nix").read_text(encoding="utf-8")
    named = re.findall(r"(?<!maybeMissing)\s(\.\./[A-Za-z0-9./_-]+)", sources)
    assert len(named) > 15
    assert [name for name in named if not (NIX / name).exists()] == []


@pytest.mark.parametrize("path", [ROOT / "flake.nix", *sorted(NIX.glob("*.nix"))], ids=lambda path: path.name)
def test_nothing_in_the_flake_is_impure(path: Path) -> None:
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    for forbidden in (r"with pkgs;", r"<nixpkgs>", r"builtins\.(fetch|current|getEnv|getFlake)", r"/usr\b", r"/home\b"):
        assert re.search(forbidden, text) is None, f"{path.name} has {forbidden}"


# Requirements and versions


def written_requirements() -> list[str]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    return [*pyproject["build-system"]["requires"], *project["dependencies"], *extras]


def versions(name: str) -> dict[str, str]:
    """Versions by name in a list of requirements or a lock; of several for other Pythons, the newest."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", text, re.MULTILINE))


def test_nix_has_a_name_for_every_requirement() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, listed = pyproject["project"], LISTED["python"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    wanted = {"build": pyproject["build-system"]["requires"], "runtime": project["dependencies"]}
    names = {group: {Requirement(text).name for text in requirements} for group, requirements in wanted.items()}
    for group in names:
        assert set(listed[group]) == names[group]
    others = {Requirement(text).name for text in extras} - names["build"]
    assert set(listed["extras"]) | set(listed["left_out"]) == others
    assert not set(listed["extras"]) & set(listed["left_out"])


def test_our_own_packages_are_the_wheels_of_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name, wheel in LISTED["own"].items():
        entry = lock[lock.index(f"\n{name}=={wheel['version']} ") + 1 :].split("\n", 3)
        digest = base64.b64decode(wheel["hash"].removeprefix("sha256-")).hex()
        assert any(f"sha256:{digest}" in line for line in entry[1:3]), name


@pytest.mark.parametrize("given_by", ["requirements.lock", "setup/pinned.in"])
def test_versions_satisfy_the_ranges_in_pyproject(given_by: str) -> None:
    given = versions(given_by)
    for written in written_requirements():
        requirement = Requirement(written)
        if given_by == "setup/pinned.in" and requirement.name not in given:
            assert requirement.name in {"editables", "hatchling", "jupyterlab", *LISTED["python"]["left_out"]}
            continue
        version = given[requirement.name]
        assert version in requirement.specifier, f"{given_by} has {requirement.name} {version}, wanted is {requirement}"


def test_the_locks_in_setup_are_of_what_they_say() -> None:
    assert versions("setup/pinned.in").items() <= versions("setup/pinned.lock").items(), "run `make lock`"
    lowest = versions("setup/lowest.lock")
    tested = [Requirement(text) for text in written_requirements() if Requirement(text).name in lowest]
    assert {"polars", "aioquic", "pytest", "pandas"} <= {requirement.name for requirement in tested}
    for requirement in tested:
        bound = next(part.version for part in requirement.specifier if part.operator == ">=")
        assert Version(lowest[requirement.name]) == Version(bound), f"run `make lock`: {requirement}"


# papermill in the shell

Papermill = Callable[..., tuple[str, list[str]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a notebook, as a reader's checkout has it."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "run_all.ipynb").write_text("{}", encoding="utf-8")
    return tmp_path


@pytest.fixture
def papermill(folder: Path) -> Papermill:
    """Run nix/papermill.sh before a papermill that only writes down its arguments; gives what was said, and those."""
    programs = folder / "programs"
    programs.mkdir()
    arguments = folder / "arguments"
    stub = programs / "papermill"
    bash = shutil.which("bash")
    stub.write_text(f"#!{bash}\nprintf '%s\\n' \"$@\" > {arguments}\necho ran\n", encoding="utf-8")
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def run(*given: str, terminal: bool = False, cwd: Path = folder) -> tuple[str, list[str]]:
        command = ["bash", str(NIX / "papermill.sh"), *given]
        if not terminal:
            done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True)
            assert done.stdout == "ran\n", "standard output is papermill's alone"
            return done.stderr, arguments.read_text(encoding="utf-8").splitlines()
        ours, others = pty.openpty()
        with subprocess.Popen(command, cwd=cwd, env=environment, stdin=others, stdout=others, stderr=others) as process:
            os.close(others)
            output = b""
            while piece := read_terminal(ours):
                output += piece
            assert process.wait() == 0
        os.close(ours)
        return output.decode(), arguments.read_text(encoding="utf-8").splitlines()

    return run


def read_terminal(terminal: int) -> bytes:
    """What the program wrote; nothing once it has closed its side, which Linux reports as an error."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


DEFAULT = ["notebooks/run_all.ipynb", "build/notebooks/run_all.ipynb", "--cwd", "notebooks"]


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_papermill_gives_an_output_path_where_there_is_none(papermill: Papermill, folder: Path, terminal: bool) -> None:
    output, arguments = papermill("notebooks/run_all.ipynb", terminal=terminal)
    assert arguments == DEFAULT
    assert "writing build/notebooks/run_all.ipynb" in output
    assert (folder / "build" / "notebooks").is_dir()


def test_papermill_takes_parameters_without_an_output_path(papermill: Papermill) -> None:
    parameters = [
        "-p",
        "size",
        "smoke",
        "--parameters",
        "studies",
        "a b",
        "--log-output",
        "-k",
        "python3",
        "--log-level=INFO",
    ]
    assert papermill("notebooks/run_all.ipynb", *parameters)[1] == DEFAULT + parameters


def test_papermill_takes_options_before_the_notebook_and_a_working_folder(papermill: Papermill) -> None:
    output = papermill("--no-progress-bar", "-p", "size", "smoke", "notebooks/run_all.ipynb", "--report-mode")
    assert output[1] == ["--no-progress-bar", "-p", "size", "smoke", *DEFAULT, "--report-mode"]
    assert papermill("--cwd", ".", "notebooks/run_all.ipynb")[1] == ["--cwd", ".", *DEFAULT[:2]]


def test_the_shells_papermill_knows_the_options_of_papermill() -> None:
    cli = pytest.importorskip("papermill.cli")
    script = (NIX / "papermill.sh").read_text(encoding="utf-8")
    for name, values in (("two", 2), ("one", 1)):
        known = re.search(rf"^{name}='([^']*)'", script, re.MULTILINE)
        assert known is not None
        takes = {
            option
            for parameter in cli.papermill.params
            for option in parameter.opts
            if option.startswith("-") and parameter.nargs == values and not parameter.is_flag
        }
        assert takes <= set(known[1].split())


def test_papermill_puts_its_output_next_to_the_notebooks_from_anywhere(papermill: Papermill, folder: Path) -> None:
    inside = papermill("run_all.ipynb", cwd=folder / "notebooks")[1]
    assert inside == ["run_all.ipynb", "../build/notebooks/run_all.ipynb", "--cwd", "."]
    (folder / "mine.ipynb").write_text("{}", encoding="utf-8")
    assert papermill("mine.ipynb")[1] == ["mine.ipynb", "build/notebooks/mine.ipynb", "--cwd", "."]


@pytest.mark.parametrize(
    "command",
    [
        ["notebooks/run_all.ipynb", "out.ipynb"],
        ["notebooks/run_all.ipynb", "out.ipynb", "-p", "size", "smoke"],
        ["notebooks/run_all.ipynb", "-p", "size", "smoke", "out.ipynb"],
        ["notebooks/run_all.ipynb", "-p", "size"],
        ["notebooks/run_all.ipynb", "-"],
        ["--help-notebook", "notebooks/run_all.ipynb"],
        ["--version"],
        ["-", "-"],
        [],
    ],
    ids=" ".join,
)
def test_papermill_passes_everything_else_on(papermill: Papermill, folder: Path, command: list[str]) -> None:
    output, arguments = papermill(*command)
    assert (output, arguments) == ("", command or [""])
    assert not (folder / "build").exists()


# nix run


@pytest.fixture
def reproduce(papermill: Papermill, folder: Path) -> Callable[..., Path]:
    """Run what `nix run .#reproduce` runs, in a folder of its own, with the stub papermill."""
    package = folder / "package"
    for name in ("notebooks/run_all.ipynb", "data/raw/coalescing/campaign.json"):
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text("from the package", encoding="utf-8")
        (package / name).chmod(0o444)
    script = "".join((NIX / name).read_text(encoding="utf-8") for name in ("workplace.sh", "reproduce.sh"))
    here = folder / "here"
    here.mkdir()
    doctor = folder / "programs" / "crosslayer"
    doctor.write_text(f"#!{shutil.which('bash')}\necho ok\necho\necho It shows.\nexit 1\n", encoding="utf-8")
    doctor.chmod(0o755)

    def run(*arguments: str) -> Path:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script, "reproduce", *arguments],
            cwd=here,
            env=os.environ | {"PATH": f"{folder / 'programs'}:{os.environ['PATH']}", "WORKPLACE": str(package)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.endswith("It shows.\n"), "it says which way it goes before it starts"
        return here

    return run


def test_reproduce_works_outside_a_checkout(reproduce: Callable[..., Path], folder: Path) -> None:
    here = reproduce("-p", "size", "smoke")
    arguments = (folder / "arguments").read_text(encoding="utf-8").splitlines()
    assert arguments == [*DEFAULT, "--stdout-file", "-", "-p", "size", "smoke"]
    assert (here / "data/raw/coalescing/campaign.json").read_text(encoding="utf-8") == "from the package"
    assert os.access(here / "notebooks/run_all.ipynb", os.W_OK)


def test_reproduce_leaves_the_readers_notebooks_alone(reproduce: Callable[..., Path]) -> None:
    here = reproduce()
    notebook = here / "notebooks" / "run_all.ipynb"
    notebook.write_text("mine", encoding="utf-8")
    reproduce()
    assert notebook.read_text(encoding="utf-8") == "mine"


# The script of the NixOS test


@pytest.fixture(scope="module")
def smoke() -> ModuleType:
    return load(ROOT / "tests" / "vm" / "check_smoke_campaign.py")


def synthetic_smoke(folder: Path, smoke: Any, **options: Any) -> Path:
    """A made-up smoke campaign that says it was measured over netem."""
    import synthetic

    plan = smoke.PLAN
    synthetic.write(folder, **({"links": plan.links, "pages": plan.pages, "rounds": plan.rounds} | options))
    campaign = json.loads((folder / "campaign.json").read_text(encoding="utf-8"))
    (folder / "campaign.json").write_text(json.dumps(campaign | {"backend": "netem"}), encoding="utf-8")
    return folder


def test_smoke_check_passes_a_whole_campaign(
    tmp_path: Path, smoke: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smoke.main(synthetic_smoke(tmp_path / "good", smoke)) == 0
    assert "a whole smoke campaign" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"links": ("fiber",)}, "are not those of smoke"),
        ({"rounds": 2}, "2 DoQ exchanges"),
        ({"h3": ("1-rtt",)}, "0 H3 0-rtt loads"),
        ({"protocols": ("DoUDP", "DoH")}, "0 DoQ exchanges"),
        ({"failures": 1.0}, "page_loads, link"),
    ],
    ids=["links", "rounds", "0-RTT", "protocols", "failures"],
)
def test_smoke_check_names_what_is_missing(
    tmp_path: Path, smoke: ModuleType, capsys: pytest.CaptureFixture[str], options: dict[str, Any], output: str
) -> None:
    assert smoke.main(synthetic_smoke(tmp_path / "bad", smoke, **options)) == 1
    assert output in capsys.readouterr().out


def test_smoke_check_reports_a_folder_that_is_no_dataset(
    tmp_path: Path, smoke: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert smoke.main(tmp_path) == 1
    assert "campaign.json" in capsys.readouterr().out


# The command where nothing measures


def test_the_wrapper_gets_only_quoted_arguments() -> None:
    """An empty word vanishes unquoted: `--prefix PATH :` then takes the next option for its folder, as on Darwin."""
    programs = (NIX / "programs.nix").read_text(encoding="utf-8")
    call = re.search(r"makeWrapper \$\{env\}(.*?)'';", programs, re.DOTALL)
    assert call is not None
    assert re.findall(r"\$\{[^}]*\}", call[1]) == ["${lib.escapeShellArgs wrapping}"]
    assert '"--prefix"' in programs[programs.index("wrapping =") : programs.index("papermill = ")]


def test_what_nixpkgs_calls_broken_on_darwin_is_for_linux_only() -> None:
    listed = LISTED["python"]
    assert set(listed["linux_only"]) <= set(listed["extras"])
    assert "listed.python.linux_only" in (NIX / "python.nix").read_text(encoding="utf-8")


# Versions


def test_the_flakes_versions_are_compared_with_those_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = load(NIX / "versions.py")
    have = compare.importlib.metadata.version("numpy")
    file = tmp_path / "pinned.in"
    monkeypatch.setattr("sys.argv", ["versions.py", str(file)])
    file.write_text(f"# Versions.\nnumpy=={have}\n", encoding="utf-8")
    assert (compare.main(), capsys.readouterr().out) == (0, "")
    file.write_text("numpy==0.1\nno-such-package==1\n", encoding="utf-8")
    assert compare.main() == 1
    output = capsys.readouterr().out
    assert f"numpy=={have}    (listed is 0.1)" in output
    assert "no-such-package: not installed, listed is 1" in output
    assert 'python nix/versions.py setup/pinned.in"' in (NIX / "checks.nix").read_text(encoding="utf-8")
