"""Measure from three vantage points of a box over SSH. One of them can die and come back.

`python tests/vantages.py FOLDER [--dies-h H] [--back-h H] ARGUMENTS` has to run in the box
`emulation/boxes/vantages.toml`. ARGUMENTS are those of `crosslayer compare`. The dataset is FOLDER/dataset. The program
starts an SSH server (asyncssh) at each vantage point and then runs `crosslayer compare`. After --dies-h hours, it kills
all processes of the vantage point `oslo`. At --back-h hours, it starts the SSH server of `oslo` again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SERVER = Path(__file__).with_name("ssh_server.py")
VANTAGES = {
    "here": ("client", "192.168.54.1"),
    "oslo": ("vantage-oslo", "192.168.54.2"),
    "lima": ("vantage-lima", "192.168.54.3"),
}
PORT = 2222


class Server:
    """The SSH server of a vantage point."""

    def __init__(self, home: Path, namespace: str, address: str) -> None:
        self._namespace = namespace
        arguments = [sys.executable, str(SERVER), address, str(PORT), str(home / "host_key")]
        arguments.append(str(home / ".ssh/authorized_keys"))
        self.process = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{namespace}", "--", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        assert int(self.process.stdout.readline()) == PORT

    def die(self) -> int:
        """Kill every process in the network namespace of the vantage point; returns the number of processes."""
        own = Path(f"/run/netns/{self._namespace}").stat().st_ino
        killed = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "ns/net").stat().st_ino == own:
                    os.kill(int(folder.name), signal.SIGKILL)
                    killed += 1
        self.process.wait()
        return killed


def prepare(home: Path) -> None:
    """Write the keys and the settings of SSH client and server to a home folder."""
    import asyncssh

    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    client_key, server_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    client_key.write_private_key(ssh / "id_ed25519")
    client_key.write_public_key(ssh / "authorized_keys")
    server_key.write_private_key(home / "host_key")
    key = server_key.export_public_key().decode().strip()
    addresses = [address for _, address in VANTAGES.values()]
    (ssh / "config").write_text("".join(f"Host {one}\n    Port {PORT}\n" for one in addresses), encoding="ascii")
    (ssh / "known_hosts").write_text("".join(f"[{one}]:{PORT} {key}\n" for one in addresses), encoding="ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dies-h", type=float, default=0.0, help="oslo dies after so many hours; 0 never")
    parser.add_argument("--back-h", type=float, default=0.0, help="and comes back after so many")
    own, further = parser.parse_known_args()
    home = own.folder / "home"
    home.mkdir(parents=True)
    prepare(home)
    os.environ["HOME"] = str(home)
    servers = {name: Server(home, *where) for name, where in VANTAGES.items()}

    def mortal() -> None:
        time.sleep(own.dies_h * 3600)
        print(f"oslo dies: {servers['oslo'].die()} processes", file=sys.stderr)
        time.sleep((own.back_h - own.dies_h) * 3600)
        servers["oslo"] = Server(home, *VANTAGES["oslo"])
        print("oslo is back", file=sys.stderr)

    if own.dies_h:
        threading.Thread(target=mortal, daemon=True).start()
    everywhere = ",".join(f"{name}={address}" for name, (_, address) in VANTAGES.items())
    command = [sys.executable, "-m", "crosslayer", "compare", "--everywhere", everywhere, "--name", "a.box.example"]
    done = subprocess.run([*command, "--dataset", str(own.folder / "dataset"), *further], check=False)
    for server in servers.values():
        server.process.kill()
        server.process.wait()
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
