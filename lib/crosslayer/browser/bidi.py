"""WebDriver BiDi without a driver, as far as a page load needs it: one command after the other on one WebSocket."""

from __future__ import annotations

import json
from typing import Any

import websocket


class BidiError(Exception):
    """A command that the browser refused, or a script that threw."""


class Bidi:
    """A session of WebDriver BiDi; `BidiError` or `websocket.WebSocketException` where it cannot be had.

    Parameters
    ----------
    url
        Of the browser's WebSocket.
    timeout_s
        How long an answer may take, `websocket.WebSocketTimeoutException` after it.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        # A browser takes no commands from pages, which have an origin.
        self._socket = websocket.create_connection(url, timeout=timeout_s, suppress_origin=True)
        self._number = 0
        self.call("session.new", capabilities={})

    def close(self) -> None:
        """Close the WebSocket; the browser goes on."""
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command, as the specification names them."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._number:
            pass  # an event
        if answer["type"] == "error":
            raise BidiError(f"{method}: {answer['error']}: {answer['message']}")
        return answer["result"]

    def run(self, function: str, argument: object, *, context: str) -> Any:
        """What a JavaScript function returns or promises, a string, a number or nothing; it gets JSON text or a number.

        Parameters
        ----------
        function
            JavaScript: a function of one argument.
        argument
            A number is given as it is, all else as JSON text.
        context
            Where it runs.
        """
        number = isinstance(argument, (int, float))
        given = {"type": "number", "value": argument} if number else {"type": "string", "value": json.dumps(argument)}
        done = self.call(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[given],
            target={"context": context},
            awaitPromise=True,
        )
        if done["type"] == "exception":
            raise BidiError(f"a script threw: {done['exceptionDetails']['text']}")
        return done["result"].get("value")
