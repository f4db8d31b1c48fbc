"""A program as an object: started, waited for, commanded, read, dead before its time, stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crosslayer import process
from crosslayer.errors import CrosslayerError
from crosslayer.process import Process, ProcessDied, run_command

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
WILLING = "import signal; print('up', flush=True); signal.pause()"
COMMANDED = """
import json, os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
connection, _ = listener.accept()
for line in connection.makefile():
    command = json.loads(line)["command"]
    if command == "die":
        print("so it ends", flush=True)
        os._exit(7)
    if command == "hang up":
        connection.shutdown(socket.SHUT_RDWR)
        time.sleep(60)
    answer = {"ok": True, "said": command} if command != "dance" else {"ok": False, "error": "no music"}
    connection.sendall(json.dumps(answer).encode() + b"\\n")
"""


class ProgramError(CrosslayerError):
    pass


class Program(Process):
    name = "the program"
    fault = ProgramError
    ready_timeout_s = 5.0


def start(folder: Path, body: str, *arguments: str) -> Program:
    return Program(subprocess.Popen, [sys.executable, "-c", body, *arguments], folder / "log")


@pytest.mark.parametrize(("body", "status"), [(WILLING, -signal.SIGTERM), (DEAF, -signal.SIGKILL), ("print()", 0)])
def test_a_stopped_program_has_ended(tmp_path: Path, body: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STOP_TIMEOUT_S", 0.2)
    with start(tmp_path, body) as program:
        if status == 0:
            program._process.wait()
        else:
            program.wait_until(lambda: program.output() == ["up"])  # its handler is set
        program.stop()
        assert program._process.returncode == status
        program.stop()
        assert program._process.returncode == status
        program.raise_if_dead()  # it was asked to end


def test_one_that_ends_before_it_is_ready_reports_its_last_output(tmp_path: Path) -> None:
    program = start(tmp_path, "print('first'); print(); print('no luck today'); raise SystemExit(3)")
    with pytest.raises(ProgramError, match="the program ended with status 3") as caught:
        program.wait_until(lambda: False)
    assert caught.value.next_step == "Last output: first | no luck today"
    assert caught.value.where == str(tmp_path / "log")


def test_the_reason_of_a_panic_precedes_the_end_of_its_backtrace(tmp_path: Path) -> None:
    program = start(
        tmp_path, "print('panic: index out of range'); [print('frame', n) for n in range(20)]; raise SystemExit(2)"
    )
    with pytest.raises(ProgramError) as caught:
        program.wait_until(lambda: False)
    assert caught.value.next_step is not None
    assert caught.value.next_step.startswith("Last output: panic: index out of range | frame 15 |")


def test_one_that_is_never_ready_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "ready_timeout_s", 0.05)
    program = start(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(ProgramError, match=r"was not ready after 0.05 s. \(no output\)"):
        program.wait_until(lambda: False)
    assert program._process.returncode == -signal.SIGTERM


def test_one_that_ends_once_it_can_be_reached_did_not_start(tmp_path: Path) -> None:
    control = tmp_path / "control"
    program = start(tmp_path, COMMANDED.replace('"die"', '"ready"'), str(control))
    with pytest.raises(ProgramError, match=r"the program ended with status 7\. Last output: so it ends"):
        program.connect(control)


def test_commands_are_answered_refused_or_the_program_is_dead(tmp_path: Path) -> None:
    control = tmp_path / "control"
    with start(tmp_path, COMMANDED, str(control)) as program:
        assert program.connect(control) == {"said": "ready"}
        assert program.command("sing") == {"said": "sing"}
        with pytest.raises(ProgramError, match="dance: the program refused: no music"):
            program.command("dance")
        program.raise_if_dead()
        with pytest.raises(ProcessDied, match=r"the program ended with status 7\. Last output: so it ends") as caught:
            program.command("die")
        assert (caught.value.program, caught.value.status) == ("the program", 7)
        with pytest.raises(ProcessDied):
            program.raise_if_dead()
    with pytest.raises(ProgramError, match="is not running"):
        program.command("sing")


def test_a_program_that_was_killed_is_dead_and_one_that_hangs_up_is_not(tmp_path: Path) -> None:
    control = tmp_path / "control"
    with start(tmp_path, COMMANDED, str(control)) as program:
        program.connect(control)
        program._process.kill()
        with pytest.raises(ProcessDied, match="ended with status -9"):
            program.command("sing")
    control.unlink()
    with start(tmp_path, COMMANDED, str(control)) as program:
        program.connect(control)
        with pytest.raises(ProgramError, match="did not answer the command `hang up`"):
            program.command("hang up")


def test_lines_are_whole_and_come_once(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"before\n")
    with start(tmp_path, "") as program:
        program.follow(file)
        for piece, lines in ((b"one\ntw", ["one"]), (b"o\nthree\n", ["two", "three"]), (b"", [])):
            with file.open("ab") as end:
                end.write(piece)
            assert program.new_lines() == lines


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(ProgramError, match="the files of the program cannot be written: Not a directory"):
        start(tmp_path / "file" / "run", "")


def test_a_command_of_the_users_has_the_status_a_shell_gives(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [run_command(["sh", "-c", body]) for body in ("exit 7", "kill -TERM $$")] == [7, 143]
    (tmp_path / "text").touch()
    assert run_command([str(tmp_path / "text")]) == 126
    assert run_command(["no-such-program"]) == 127
    assert capfd.readouterr().err.splitlines() == [
        f"crosslayer: {tmp_path / 'text'}: not executable",
        "crosslayer: no-such-program: command not found",
    ]
