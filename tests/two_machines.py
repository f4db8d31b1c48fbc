"""Two emulated machines with a switch between them: network namespaces with separate mounts.

`python -m tests.two_machines FOLDER` runs a campaign of `tests/sleeping.py` on both machines. It needs private
namespaces around it. In the middle of the campaign one machine loses its network, and later gets it back.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from crosslayer.testbed import namespaces
from tests import sleeping
from tests.cluster import Cluster, check_whole

ROUNDS = 400
MACHINES = ("left", "right")
HOST = "10.9.0.1"


def ip(*arguments: str) -> None:
    subprocess.run([namespaces.tool("ip"), *arguments], check=True)


def machine(index: int, name: str) -> list[str]:
    """Create a machine connected to the switch; returns the command prefix that runs a command on this machine."""
    holder = subprocess.Popen([namespaces.tool("unshare"), "--net", "--mount", "--uts", "sleep", "infinity"])
    inside = [namespaces.tool("nsenter"), f"--target={holder.pid}", "--net", "--mount", "--uts"]
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        time.sleep(0.01)
    ip("link", "add", name, "master", "switch", "up", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
    for arguments in (
        ["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"],
        ["hostname", name],
        [namespaces.tool("ip"), "link", "set", "lo", "up"],
        [namespaces.tool("ip"), "address", "add", f"10.9.0.{index + 2}/24", "dev", "eth0"],
        [namespaces.tool("ip"), "link", "set", "eth0", "up"],
    ):
        subprocess.run([*inside, *arguments], check=True)
    return inside


def main(folder: Path) -> None:
    """Run a campaign on both machines, and check that every round is stored once.

    During the campaign, one machine's network is cut and restored.
    """
    ip("link", "set", "lo", "up")
    ip("link", "add", "switch", "up", "type", "bridge")
    ip("address", "add", f"{HOST}/24", "dev", "switch")
    inside = {name: machine(index, name) for index, name in enumerate(MACHINES)}
    environment = {
        sleeping.ROUND_S: "0.2",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
    }
    with Cluster(folder, rounds=ROUNDS, batch=3, environment=environment, host=HOST) as cluster:
        cluster.scheduler()
        for name in MACHINES:
            # A loop starts the worker again (docs/howto/cluster.md), because a worker that lost its scheduler ends.
            cluster.worker(name, before=[*inside[name], "sh", "-c", 'until false; do "$@"; sleep 1; done', "sh"])
            cluster.wait_for_log(name, "Registered to")
        cluster.starter()
        cluster.wait_for_log("starter", f" 20/{2 * ROUNDS} ")
        ip("link", "set", MACHINES[0], "down")
        cluster.wait_for_log("scheduler", "Remove worker")
        ip("link", "set", MACHINES[0], "up")
        while cluster.log(MACHINES[0]).read_text(encoding="utf-8").count("Registered to") < 2:
            assert cluster.running["starter"].poll() is None, "the plan was over before the machine was back"
            time.sleep(0.1)
        assert cluster.running["starter"].wait(300) == 0, cluster.log("starter").read_text(encoding="utf-8")
        loads = check_whole(cluster.dataset, ROUNDS)
    print(sorted(loads.group_by("host").len().iter_rows()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
