"""The wheel outside a checkout: its files, its programs, a smoke campaign and its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "--wheel-dir", folder, ROOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function that runs `crosslayer` from the wheel in a new environment, in an empty folder, with an empty home.

    The environment uses the packages of this test's environment by a path file. It does not contain crosslayer's
    checkout, because Python does not read path files in a folder that a path file names.
    """
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "tested.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--ignore-installed"]
    subprocess.run([*pip, wheel], check=True)
    here, home = folder / "here", folder / "home"
    here.mkdir()
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CROSSLAYER_", "PYTHON", "XDG_"))}
    go = subprocess.run([ROOT / "setup" / "go"], capture_output=True, text=True, check=False).stdout.strip()
    if go:
        names = ("GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOSUMDB")
        values = subprocess.run([go, "env", *names], capture_output=True, text=True, check=True).stdout.splitlines()
        kept |= dict(zip(names, values, strict=True))
        kept["PATH"] = f"{Path(go).parent}{os.pathsep}{kept['PATH']}"

    def run(*arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [folder / "venv" / "bin" / "crosslayer", *arguments],
            cwd=here,
            env=kept | {"HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    run.folder = here  # type: ignore[attr-defined]  # where it runs
    return run


def findings(installed: Any) -> dict[str, dict[str, str]]:
    return {finding["item"]: finding for finding in json.loads(installed("doctor", "--json").stdout)["findings"]}


def test_it_carries_what_measuring_reads_and_no_campaign(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shared = {name.removeprefix("crosslayer/share/") for name in names if name.startswith("crosslayer/share/")}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not tracked:
        pytest.skip("this is no git checkout: what is committed is not known")
    # `pages/` and the servers read these files. Tests and generators of pages are not in the wheel.
    wanted = {
        name
        for name in tracked
        if name.startswith(("sites/", "data/published/", "emulation/traces/"))
        and not name.startswith("sites/_make/")
        and not name.endswith("/make.py")
    }
    assert wanted <= shared
    assert {"emulation/profiles.toml", "emulation/go.mod", "emulation/go.sum"} <= shared
    assert not [name for name in names if "_test.go" in name or name.startswith("crosslayer/share/data/raw")]
    assert wheel.stat().st_size < 10e6


def test_its_report_is_that_of_the_checkout(installed: Any) -> None:
    """Figures and verdicts need the published values and processes that import the package, but no checkout."""
    done = installed("report", str(ROOT / "data" / "raw" / "serialisation"), "--out", "report")
    assert done.returncode == 0, done.stderr
    page = installed.folder / "report" / "serialisation" / "index.html"
    assert page.read_text(encoding="utf-8").count("<figure") >= 2


@pytest.mark.alone
def test_it_builds_its_programs_and_measures(installed: Any) -> None:
    before = findings(installed)
    for name in ("profiles", "sites", "published"):
        assert before[name]["detail"].endswith("(the package)")
    assert before["crosslayer-server"]["state"] == "missing"
    assert "crosslayer setup" in before["crosslayer-server"]["way_out"]

    done = installed("setup")
    if "Go could not build" in done.stderr:
        pytest.skip(f"the Go modules are out of reach: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    after = findings(installed)
    for name in ("crosslayer-server", "crosslayer-stub", "crosslayer-uml-link", "crosslayer-guest"):
        assert after[name]["detail"].endswith("(crosslayer setup)")

    done = installed("measure", "--size", "smoke", "--out", "smoke", timeout_s=900)
    if done.returncode == 3 and not os.environ.get("CROSSLAYER_CAN_MEASURE"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    done = installed("report", "smoke", "--out", "report-of-smoke")
    assert done.returncode == 0, done.stderr
    text = (installed.folder / "report-of-smoke" / "coalescing" / "index.html").read_text(encoding="utf-8")
    assert text.count("<figure") >= 10
