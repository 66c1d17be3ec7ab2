"""Phases of the user's own: a call, a block or a function."""

from __future__ import annotations

import functools
import inspect
import threading
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar

from . import _library

_F = TypeVar("_F", bound=Callable[..., Any])


class _Current(threading.local):
    """The phase that this thread has begun last."""

    name = ""


_current = _Current()


def _begin(name: str) -> bool:
    _current.name = name
    return _library.is_loaded() and bool(_library.library().strandline_phase(name.encode()) == 0)


class Phase:
    """A phase that has begun. True: it is recorded.

    As a context manager the phase before it begins again when the block is left; as a decorator, when the function, which may be
    `async`, returns.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._before = _current.name
        self._recorded = _begin(name)

    def __bool__(self) -> bool:
        return self._recorded

    def __repr__(self) -> str:
        return f"<strandline.phase({self.name!r}){'' if self._recorded else ', not recorded'}>"

    def __enter__(self) -> Phase:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        _begin(self._before)

    def __call__(self, function: _F) -> _F:
        # It is the function that is a phase, not what runs while it is defined.
        _begin(self._before)
        name = self.name
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise _library.Error(f"{function.__qualname__} is a generator, between whose values other code runs: use `with strandline.phase({name!r}):` in it")

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: Any, **named: Any) -> Any:
                with Phase(name):
                    return await function(*arguments, **named)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def within(*arguments: Any, **named: Any) -> Any:
            with Phase(name):
                return function(*arguments, **named)

        return within  # type: ignore[return-value]


def phase(name: str) -> Phase:
    """A phase of your own begins: `phase("eval")`, `with phase("eval"):`, or `@phase("eval")` before a function.

    The result is true where it is recorded.
    """
    return Phase(name)
