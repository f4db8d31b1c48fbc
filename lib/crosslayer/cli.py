"""The `crosslayer` command: its list of commands, and the code that prints each foreseeable error as one message."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from importlib import import_module

import click

from crosslayer import __version__
from crosslayer.errors import CrosslayerError

CANNOT_MEASURE = 3
"""Exit status if the machine cannot provide the testbed, so nothing was measured."""

COMMANDS = (
    "doctor", "setup", "studies", "link", "measure", "export", "figures", "claims", "report", "show", "sample-size",
    "drift", "import", "page", "discover", "servers", "stub", "box", "compare",
)  # fmt: skip


class Commands(click.Group):
    """A group of commands, each imported on first use.

    A command is the object `command` of a module in `crosslayer.commands`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module("crosslayer.commands." + cmd_name.replace("import", "import_").replace("-", "_"))
        command: click.Command = module.command
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """What does encrypted DNS cost web users, and what is saved if DNS and HTTP/3 share one connection?

    \b
    crosslayer doctor                              what this machine can do
    crosslayer setup                               build the Go programs (in a checkout, run `make setup` instead)
    crosslayer link 4g -- kdig +quic '@$CROSSLAYER_SERVER' www.example.org
                                                   your own client on an emulated link
    crosslayer measure --size smoke                a small campaign, about a minute
    crosslayer report data/local/coalescing-smoke  figures and claims of this campaign as web pages
    """


def _output_failed() -> bool:
    """Whether standard output cannot be written; if so, redirect it to /dev/null, because Python would retry at exit.

    If the output is unbuffered, a flush writes nothing and cannot fail, so this function also writes a line break.
    """
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def main() -> None:
    """Entry point. Foreseeable errors are printed as one message.

    If the environment variable CROSSLAYER_DEBUG is set, a traceback precedes the message.
    """
    # The matrices of the bootstrap are small, so threads of BLAS would mostly wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    color = False if os.environ.get("NO_COLOR") else None  # no-color.org; None: colours only on a terminal
    try:
        try:
            cli.main(prog_name="crosslayer", color=color)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not _output_failed():
            raise
        click.echo(f"crosslayer: standard output cannot be written ({error.strerror})", err=True)
        sys.exit(1)
    except CrosslayerError as error:
        if os.environ.get("CROSSLAYER_DEBUG"):
            traceback.print_exc()
        click.echo(f"{click.style('crosslayer:', fg='red')} {error}", err=True, color=color)
        # Importing the testbed takes a third of a second. Its errors can only occur if it is imported already.
        testbed = sys.modules.get("crosslayer.testbed.errors")
        sys.exit(CANNOT_MEASURE if testbed and isinstance(error, testbed.TestbedError) else 1)
    except subprocess.CalledProcessError as error:
        click.echo(f"crosslayer: {' '.join(map(str, error.cmd))} ended with {error.returncode}", err=True)
        sys.exit(1)
