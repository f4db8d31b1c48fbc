"""A WebDriver BiDi client that connects to the browser without a driver and sends one command at a time."""

from __future__ import annotations

import json
from typing import Any

import websocket


class BidiError(Exception):
    """The browser refused a command, or a script threw an exception."""


class Bidi:
    """A session of WebDriver BiDi; `BidiError` or `websocket.WebSocketException` if it cannot be opened.

    Parameters
    ----------
    url
        URL of the browser's WebSocket.
    timeout_s
        Timeout of each answer, s; after it `websocket.WebSocketTimeoutException` is raised.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        # A browser refuses connections with an Origin header, because pages send one.
        self._socket = websocket.create_connection(url, timeout=timeout_s, suppress_origin=True)
        self._number = 0
        self.call("session.new", capabilities={})

    def close(self) -> None:
        """Close the WebSocket; the browser continues to run."""
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result.

        `method` and the names in `parameters` are those of the WebDriver BiDi specification.
        """
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._number:
            pass  # skip events
        if answer["type"] == "error":
            raise BidiError(f"{method}: {answer['error']}: {answer['message']}")
        return answer["result"]

    def run(self, function: str, argument: object, *, context: str) -> Any:
        """Run a JavaScript function and return its result or the result that it promises: a string, a number or None.

        Parameters
        ----------
        function
            JavaScript: a function of one argument.
        argument
            Argument of the function. A number is passed as a number, any other value as JSON text.
        context
            Browsing context in which the function runs.
        """
        number = isinstance(argument, (int, float))
        value = {"type": "number", "value": argument} if number else {"type": "string", "value": json.dumps(argument)}
        done = self.call(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[value],
            target={"context": context},
            awaitPromise=True,
        )
        if done["type"] == "exception":
            raise BidiError(f"a script threw: {done['exceptionDetails']['text']}")
        return done["result"].get("value")
