"""The one shape of every fault: it says what, where and what to do, also when it comes from another process."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import crosslayer
from crosslayer.errors import CrosslayerError
from crosslayer.process import ProcessDied


def kinds(of: type[CrosslayerError] = CrosslayerError) -> list[type[CrosslayerError]]:
    """A class and every class below it, after every module of the library was imported."""
    if of is CrosslayerError:
        for module in pkgutil.walk_packages(crosslayer.__path__, "crosslayer."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    below = [kind for kind in of.__subclasses__() if kind.__module__.startswith("crosslayer.")]
    return [of, *(more for kind in below for more in kinds(kind))]


KINDS = kinds()


def an_error(kind: type[CrosslayerError]) -> CrosslayerError:
    if issubclass(kind, ProcessDied):
        return kind("the server", -9, where="server.log", next_step="Last output: none.")
    return kind("is wrong", where="here", next_step="Do that.")


def test_every_room_has_its_own() -> None:
    assert len(KINDS) > 20


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_error_pickles(kind: type[CrosslayerError]) -> None:
    error = an_error(kind)
    error.add_note("and more")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.args == error.args


def fail() -> None:
    raise an_error(ProcessDied)


@pytest.mark.slow
def test_an_error_of_a_process_pool_arrives_as_it_is() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with pytest.raises(ProcessDied, match="the server ended with status -9") as caught:
            pool.submit(fail).result()
        assert caught.value.status == -9
        assert pool.submit(int).result() == 0, "the pool is whole"
