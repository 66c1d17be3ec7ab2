"""Who keeps a tensor: a way through Python's own objects, from the tensor up to a name. Asked only where something was left behind.

Objects are looked at as the garbage collector sees them; nothing of the program's own is called. What C++ keeps has no name here.
"""

# It deals with objects of any type.
# pyright: standard

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import sys
import types
from collections.abc import Sequence
from typing import Any, Optional

# Levels of references that are climbed, and objects of one level beyond which the way is lost.
_LEVELS = 12
_WIDTH = 200
# Names that are told, the nearest first.
_NAMES = 3

_CONTAINERS = (list, tuple, set, frozenset, dict, collections.OrderedDict, collections.deque, collections.defaultdict)
_CACHE = type(functools.lru_cache(lambda: None))
# Packages whose objects and variables are no answer: those of the interpreter, blocks that are being executed, and of pytest and us around a test.
_NO_OWNERS = ("builtins", "contextlib", "strandline", "_pytest", "pluggy", "pytest", "xdist", "execnet", "__channelexec__")
# Of pytest's objects only marks and exceptions are the tests' own to keep: others lead to its session, and from there to anything.
_ENDS = ("_pytest", "pluggy", "xdist", "execnet")
_NO_ENDS = ("_pytest.mark.structures", "_pytest._code.code")


class Name:
    """A name on the way up: what is said of it, and where in a source it stands."""

    def __init__(self, text: str, scope: Optional[dict[str, Any]] = None) -> None:
        self.text, self.scope = text, scope


class _Step:
    """An object on the way up, what it holds, and the names that led to it."""

    def __init__(self, at: Any, below: Optional[_Step], names: tuple[Name, ...], line: int) -> None:
        self.at, self.below, self.names, self.line = at, below, names, line


class _Tensors:
    """The tensors whose memory begins at one of these addresses."""

    def __init__(self, addresses: dict[tuple[int, int], int]) -> None:
        torch: Any = sys.modules.get("torch")
        kinds = (torch.Tensor, torch.nn.Parameter)
        self.found: list[_Step] = []
        self.at: set[tuple[int, int]] = set()
        # Tensors of other types, which are not looked into, may be at any address.
        self.has_others = False
        for at in gc.get_objects():
            if type(at) in kinds and at.is_cuda:
                place = (at.get_device(), at.untyped_storage().data_ptr())
                line = addresses.get(place)
                if line is not None:
                    self.found.append(_Step(at, None, (), line))
                    self.at.add(place)
            elif type(at) not in kinds and issubclass(type(at), torch.Tensor):
                self.has_others = True


def _size(at: Any) -> str:
    kind = type(at)
    if kind is _CACHE:
        return " (functools.lru_cache)"
    if kind not in _CONTAINERS:
        return ""
    entries = "1 entry" if len(at) == 1 else f"{len(at)} entries"
    return f" ({kind.__name__} with {entries})"


def _key(held: dict[Any, Any], value: Any) -> Optional[str]:
    return next((k for k, v in list(held.items()) if v is value and type(k) is str), None)


def _held(step: _Step) -> str:
    """What is said of the thing itself beside its name."""
    return "" if step.below is None else _size(step.at)


def _is_owner(module: Any) -> bool:
    return type(module) is str and module.partition(".")[0] not in _NO_OWNERS


def _is_end(at: Any) -> bool:
    """Whether nobody above this object is an answer."""
    module = type.__getattribute__(type(at), "__module__")
    return type(module) is str and module.partition(".")[0] in _ENDS and module not in _NO_ENDS


def _file(module: Any) -> Optional[str]:
    file = vars(module).get("__file__") if issubclass(type(module), types.ModuleType) else None
    return file if type(file) is str else None


def _scope(kind: str, variable: str, held: Any, **where: Any) -> dict[str, Any]:
    """Where a name stands, in the words of what the command looks for in the source."""
    return {"kind": kind, "variable": variable, "type": type(held).__name__, **where}


def _held_under(kind: str, owner: type, held: dict[Any, Any], step: _Step) -> Optional[Name]:
    """The attribute that has what `step` is at, which may be the dictionary; from CPython 3.11 on an object refers to its values itself."""
    for below in (step, step.below):
        key = None if below is None else _key(held, below.at)
        if below is not None and key is not None:
            return _attribute(kind, owner, key, below)
    return None


def _attributes(at: Any) -> dict[Any, Any]:
    """What an object has in slots and in its dictionary; no code of its class runs."""
    held: dict[Any, Any] = {}
    for kind in type.__getattribute__(type(at), "__mro__"):
        of_kind = type.__getattribute__(kind, "__dict__")
        # Members of a type that is written in C, such as `functools.partial`, are nothing that a program has named.
        slots = of_kind.items() if "__slots__" in of_kind else ()
        for name, slot in slots:
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):
                    held[name] = slot.__get__(at)
    with contextlib.suppress(AttributeError, TypeError):
        own = object.__getattribute__(at, "__dict__")
        held.update(own if type(own) is dict else {})
    return held


def _attribute(kind: str, owner: type, key: str, below: _Step) -> Name:
    def of_type(name: str) -> Any:
        return type.__getattribute__(owner, name)

    module = of_type("__module__")
    file = _file(sys.modules.get(module)) if type(module) is str else None
    scope = _scope(kind, key, below.at, file=file, **{"class": of_type("__name__")}, module=module)
    return Name(f"{of_type('__qualname__')}.{key}{_held(below)}", scope)


def _closed_over(function: types.FunctionType, step: _Step) -> Name:
    text, cells = f"a variable that {function.__qualname__}() captured", function.__closure__
    cell = step.below
    if cells is None or cell is None or step.at is not cells:
        return Name(text)
    code = function.__code__
    variable = next((v for v, c in zip(code.co_freevars, cells) if c is cell.at), None)
    if variable is None or cell.below is None:
        return Name(text)
    where = {"function": function.__qualname__, "file": code.co_filename, "line": code.co_firstlineno}
    return Name(text, _scope("closure", variable, cell.below.at, **where))


def _name(at: Any, step: _Step, modules: dict[int, str]) -> Optional[Name]:
    """What `at` calls the object of `step`, which it refers to; `None`: it has no name there."""
    if type(at) is dict and id(at) in modules:
        key, module = _key(at, step.at), modules[id(at)]
        if key is None or not _is_owner(module):
            return None
        scope = _scope("global", key, step.at, module=module, file=_file(sys.modules.get(module)))
        return Name(f"{module}.{key}{_held(step)}", scope)
    if issubclass(type(at), type):
        owner: Any = at
        return _held_under("class", owner, dict(type.__getattribute__(owner, "__dict__")), step)
    if type(at) is types.FunctionType:
        return _closed_over(at, step) if type(step.at) is tuple and _is_owner(at.__module__) else None
    if type(at) is types.FrameType:
        return Name(f"a local variable of {at.f_code.co_name}()") if _is_owner(at.f_globals.get("__name__")) else None
    if type(at) in (*_CONTAINERS, _CACHE) or not _is_owner(type(at).__module__):
        return None
    return _held_under("attribute", type(at), _attributes(at), step)


def _running() -> set[int]:
    """Frames that are being executed: what they hold they let go of."""
    found: set[int] = set()
    for top in list(sys._current_frames().values()):
        frame: Optional[types.FrameType] = top
        while frame is not None:
            found.add(id(frame))
            frame = frame.f_back
    return found


def _climb(found: list[_Step]) -> dict[int, tuple[Name, ...]]:
    # By its own name: torch.multiprocessing lists __main__ under another one, too.
    modules = {
        id(vars(m)): str(vars(m).get("__name__", n)) for n, m in list(sys.modules.items()) if issubclass(type(m), types.ModuleType)
    }
    ours, seen = _running(), {id(step.at) for step in found}
    best: dict[int, tuple[Name, ...]] = {}
    done: set[int] = set()
    level = found
    for _ in range(_LEVELS):
        level = [step for step in level if step.line not in done]
        if not level or len(level) > _WIDTH:
            break
        above: list[_Step] = []
        # One look at all objects for a whole level; which of these an object holds is asked of it alone.
        by_id: dict[int, list[_Step]] = {}
        for step in level:
            by_id.setdefault(id(step.at), []).append(step)
        ignored = {id(x) for x in (level, above, by_id, found, *by_id.values(), *level, *map(vars, level))}
        for at in gc.get_referrers(*[step.at for step in level]):
            if id(at) in ours or id(at) in ignored or id(at) in seen or type(at) is _Step or _is_end(at):
                continue
            # One way for each line whose blocks it holds.
            below: dict[int, _Step] = {}
            for step in (s for x in gc.get_referents(at) for s in by_id.get(id(x), ())):
                below.setdefault(step.line, step)
            if not below:
                continue
            seen.add(id(at))
            for step in below.values():
                name = _name(at, step, modules)
                names = step.names if name is None else (*step.names, name)
                if len(names) > len(best.get(step.line, ())):
                    best[step.line] = names
                if id(at) in modules:
                    if name is not None:
                        best[step.line] = names
                        done.add(step.line)
                elif not issubclass(type(at), types.ModuleType):
                    above.append(_Step(at, step, names, step.line))
        level = above
    return best


def in_words(names: Sequence[Name]) -> str:
    """As a person reads it: the nearest names, and the outermost."""
    shown = [name.text for name in names]
    return ", in ".join([*shown[: _NAMES - 1], shown[-1]] if len(shown) > _NAMES else shown)


class Keepers:
    """Who keeps the blocks at these addresses (device, address, bytes), by the index of their list."""

    def __init__(self, addresses: Sequence[Sequence[tuple[int, int, int]]]) -> None:
        self.names: dict[int, tuple[Name, ...]] = {}
        """The nearest name first; what is not found is left out."""
        self.apart: dict[int, tuple[int, int]] = {}
        """Blocks, and their bytes, beside those of a tensor that is kept, which are of no tensor themselves."""
        if "torch" not in sys.modules:
            return
        wanted = {(device, address): i for i, blocks in enumerate(addresses) for device, address, _ in blocks}
        try:
            tensors = _Tensors(wanted)
            self.names = _climb(tensors.found)
        except Exception:
            # A program that goes on while it is looked at, or objects that are not what they seem: nobody is named.
            return
        for i in () if tensors.has_others else self.names:
            apart = [size for device, address, size in addresses[i] if (device, address) not in tensors.at]
            if apart:
                self.apart[i] = (len(apart), sum(apart))
