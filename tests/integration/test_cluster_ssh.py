"""A cluster over SSH: keys, host keys and ports of ~/.ssh, and listening addresses. The SSH server is asyncssh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from crosslayer.campaign import cluster
from crosslayer.campaign.cluster import connected, listening
from crosslayer.campaign.errors import CampaignError

asyncssh = pytest.importorskip("asyncssh")

HOST = "127.0.0.1"
SERVER = Path(__file__).parents[1] / "ssh_server.py"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose ~/.ssh has keys and settings for an SSH server on another port of the loopback."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    user_key, host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user_key.write_private_key(ssh / "id_ed25519")
    user_key.write_public_key(ssh / "authorized_keys")
    host_key.write_private_key(tmp_path / "host_key")
    monkeypatch.setenv("HOME", str(tmp_path))
    command = [sys.executable, str(SERVER), HOST, "0", str(tmp_path / "host_key"), str(ssh / "authorized_keys")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        (ssh / "config").write_text(f"Host {HOST}\n    Port {port}\n", encoding="ascii")
        key = host_key.export_public_key().decode().strip()
        (ssh / "known_hosts").write_text(f"[{HOST}]:{port} {key}\n", encoding="ascii")
        yield tmp_path
        os.killpg(server.pid, signal.SIGKILL)


def listeners() -> set[str]:
    """Addresses on which Dask processes started by this one listen."""
    names = set()
    for process in psutil.Process().children(recursive=True):
        if "distributed" in " ".join(process.cmdline()):
            names |= {one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    return names


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_cluster_on_the_loopback_listens_nowhere_else(home: Path) -> None:
    with connected(None, "ssh", hosts=HOST, clock="wall") as client:
        client.wait_for_workers(1, timeout=60)
        assert client.scheduler.address.startswith(f"tcp://{HOST}:")
        assert listeners() == {HOST}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("missing", "message"),
    [("known_hosts", f"Host key is not trusted for host {HOST}"), ("id_ed25519", "Permission denied")],
)
def test_what_is_missing_of_ssh_has_its_step(home: Path, missing: str, message: str) -> None:
    (home / ".ssh" / missing).unlink()
    with pytest.raises(CampaignError, match=message) as caught, connected(None, "ssh", hosts=HOST):
        pass
    assert caught.value.next_step == "See docs/howto/cluster.md, SSH."
    docs = (Path(__file__).parents[2] / "docs" / "howto" / "cluster.md").read_text(encoding="utf-8")
    assert message.removesuffix(HOST).strip() in docs.partition("## SSH")[2].partition("## SLURM")[0]


def test_the_address_that_is_named_is_listened_on() -> None:
    assert listening("192.0.2.7")["scheduler"]["host"] == "192.0.2.7"
    assert "host" not in listening("192.0.2.7")["worker"]
    assert listening("me@127.0.0.1")["worker"]["host"] == "127.0.0.1"
    assert "host" not in listening("a name of ~/.ssh/config")["scheduler"]
    assert {listening(name)["scheduler"]["dashboard_address"] for name in ("192.0.2.7", "x y")} == {"127.0.0.1:8797"}


def test_slurm_without_its_command_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_program", lambda name: None)
    with pytest.raises(CampaignError, match=r"there is no `sbatch` on this machine"), connected(None, "slurm"):
        pass


@pytest.mark.parametrize("content", ["not JSON", "[]", "{}", '{"address": 5}', ""])
def test_a_scheduler_file_that_is_none_is_one_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(CampaignError, match=r"is not JSON|names no address of a scheduler"), connected(str(file), None):
        pass
