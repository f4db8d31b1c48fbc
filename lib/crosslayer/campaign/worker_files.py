"""Files that a campaign sends to workers on other machines: the user's own pages, and the traces of the plan's links.

This module is imported only if Dask is installed.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from distributed import WorkerPlugin, get_worker

from crosslayer import pages
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.rounds import Job
from crosslayer.testbed.errors import TestbedError
from crosslayer.traces import Trace


@dataclass(frozen=True)
class WorkerFiles(WorkerPlugin):  # type: ignore[misc]  # untyped in some versions
    """A ZIP archive of files that Dask sends to all present and future workers."""

    packed: bytes

    def setup(self, worker: Any) -> None:
        """Unpack the files on a worker; Dask calls this method."""
        self.unpack(Path(worker.local_directory))

    @property
    def name(self) -> str:
        """Name of the archive, and of the folder of its files on a worker. It depends only on the files."""
        return f"crosslayer-{hashlib.sha256(self.packed).hexdigest()[:16]}"

    def unpack(self, folder: Path) -> None:
        """Unpack the files atomically into the folder `name` below `folder`; nothing is done if that folder exists."""
        if (folder / self.name).is_dir():
            return
        made = Path(mkdtemp(dir=folder))
        with zipfile.ZipFile(io.BytesIO(self.packed)) as files:
            files.extractall(made)
        made.rename(folder / self.name)


def pack(job: Job) -> WorkerFiles | None:
    """Pack the files that a job's workers may lack; None if there are none.

    Of a page's folder, only the specification and the files that it names are packed.

    Raises
    ------
    CampaignError
        For a file that cannot be read.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name, file in _files(job):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise CampaignError(
                    f"cannot be sent to workers ({error.strerror})", where=str(file), next_step="Make it readable."
                ) from error
            made.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # without its time and mode
        if not made.namelist():
            return None
    return WorkerFiles(packed.getvalue())


def localise(job: Job, name: str) -> Job:
    """Copy of a job in which the paths of own pages and traces point into this worker's unpacked archive `name`.

    Raises
    ------
    TestbedError
        If the worker did not receive the archive.
    """
    folder = Path(get_worker().local_directory) / name
    if not folder.is_dir():
        raise TestbedError(
            "the campaign's own pages and traces are missing", where=str(folder), next_step="Start the worker again."
        )
    own = tuple(folder / _page(number, path) for number, path in enumerate(job.own_pages))
    profiles = {
        name: replace(profile, trace=_moved(profile.trace, folder / _traces(job, name)))
        if profile.trace and name in job.plan.links
        else profile
        for name, profile in job.profiles.items()
    }
    return replace(job, own_pages=own, profiles=profiles)


def _files(job: Job) -> Iterator[tuple[str, Path]]:
    """Yield each file to pack: its name in the archive, and its path on this machine."""
    specs = pages.load_pages(pages.find_spec_dir(), *job.own_pages) if job.own_pages else {}
    for number, path in enumerate(job.own_pages):
        sources = {pages.SPEC_FILE} | {str(resource.source) for resource in specs[path.name].resources}
        yield from ((f"{_page(number, path)}/{source}", path / source) for source in sorted(sources))
    for name in job.plan.links:
        if trace := job.profiles[name].trace:
            for field, file in trace.files.items():
                yield f"{_traces(job, name)}/{field}-{file.name}", file


def _page(number: int, path: Path) -> str:
    return f"pages/{number}/{path.name}"


def _traces(job: Job, link: str) -> str:
    return f"traces/{job.plan.links.index(link)}"


def _moved(trace: Trace, folder: Path) -> Trace:
    return trace.moved({field: folder / f"{field}-{file.name}" for field, file in trace.files.items()})
