"""Calls that are answered in the thread that receives them: what is quick need not change threads on its way.

gRPC gives each call to a thread of a pool before the request has come. That thread waits for the receiving one, so a call
changes threads twice, which takes longer than the answer. There is no public way around: a pool that ran the call at once
would wait for a request that nobody receives.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Callable

from .rpc import grpc

# `rpc` sets what gRPC reads before its parts are imported
try:
    from grpc._cython.cygrpc import ReceiveMessageOperation
    from grpc._server import _RECEIVE_MESSAGE_TOKEN, _receive_message
except ImportError:
    _receive_message = None

_DONE: Future[Any] = Future()
_DONE.set_result(None)


def quick(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a method of one request and one answer that gRPC's servers answer without changing threads.

    behaviour: takes the request and the context, and must not wait: until it returns its server receives nothing else.
    """
    if grpc is None:
        return behaviour
    made = partial(behaviour)
    made.experimental_thread_pool = Inline(1)  # type: ignore[attr-defined]
    return made


class Inline(ThreadPoolExecutor):
    """A pool that answers a call when its request is there, in the thread that received it.

    What this knows of gRPC's inner parts is the same in grpcio 1.51 to 1.85. Where they look otherwise it is an ordinary pool.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Take over a call: fn(*args) answers it, and the third argument from the end waits for its request."""
        try:
            arrived, state, _behaviour, _wait, decode, _encode = args[-6:]
            receive = _receive_message(state, arrived.call, decode)
            operation = ReceiveMessageOperation(0)
            due, _none = state.due, state.request
        except (AttributeError, TypeError, ValueError):
            return super().submit(fn, *args, **options)
        pooled = super().submit

        def received(event: Any) -> Any:
            ended = receive(event)
            request, state.request = state.request, None
            if request is not None:
                fn(*args[:-3], lambda: request, *args[-2:])
            elif ended[0] is None:
                # a client that ended without a request, or sent what is none: the pool says so
                pooled(fn, *args, **options)
            return ended

        arrived.call.start_server_batch((operation,), received)
        due.add(_RECEIVE_MESSAGE_TOKEN)
        return _DONE
