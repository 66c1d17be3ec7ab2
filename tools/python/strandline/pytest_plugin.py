"""The pytest plugin: what each test leaves behind on the GPU, and which line allocated it (docs/pytest.md).

    @pytest.mark.limit_gpu_leaks("1 MB", warmup=3)
    @pytest.mark.limit_gpu_memory("2 GiB")

Nothing of this runs for tests without one of these, unless `--strandline` or `--strandline-limit` asks for all tests.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Optional, Union

import pytest

if TYPE_CHECKING:
    from ._watched_test import WatchedTest

_LEAKS = 'limit_gpu_leaks(limit="0 B", warmup=1): the GPU memory that the test may leave behind, after it has been called `warmup` times without counting'
_MEMORY = "limit_gpu_memory(limit): the most GPU memory that may be in use on a device while the test runs"

# What the plugin keeps in pytest's objects: the test that is watched, and what is known of all that were.
_WATCHED = pytest.StashKey["WatchedTest"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("strandline", "what tests leave behind on the GPU")
    group.addoption("--strandline", action="store_true", help="list what each test leaves behind on the GPU, and the lines that allocated it")
    group.addoption("--strandline-limit", metavar="SIZE", help='fail tests that leave more behind than SIZE, such as "1 MB": limit_gpu_leaks for every test')
    group.addoption("--strandline-warmup", metavar="N", type=int, default=1, help="with --strandline-limit: calls of each test that are not counted [default: 1]")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _LEAKS)
    config.addinivalue_line("markers", _MEMORY)
    limit: Optional[str] = config.getoption("--strandline-limit")
    if limit is not None:
        _to_bytes(limit, "--strandline-limit")
    config.pluginmanager.register(Plugin(config), "strandline-tests")


def _to_bytes(size: Union[int, str], what: str) -> int:
    from . import Error
    from ._size import to_bytes

    try:
        return to_bytes(size)
    except Error as e:
        raise pytest.UsageError(f"{what}: {e}") from None


class Plugin:
    """The hooks, of one pytest process."""

    def __init__(self, config: pytest.Config) -> None:
        self.lists_all = bool(config.getoption("--strandline"))
        self.limit: Optional[str] = config.getoption("--strandline-limit")
        self.warmup = int(config.getoption("--strandline-warmup") or 0)
        self.now: Optional[WatchedTest] = None
        # In the process that reports: what was said of each test.
        self.told: list[dict[str, Any]] = []

    def _wanted(self, item: pytest.Item) -> Optional[WatchedTest]:
        """How a test is to be watched; `None`: not at all."""
        leaks, memory = item.get_closest_marker("limit_gpu_leaks"), item.get_closest_marker("limit_gpu_memory")
        if leaks is None and memory is None and self.limit is None and not self.lists_all:
            return None
        from ._watched_test import WatchedTest

        limit: Union[int, str, None] = self.limit
        warmup = self.warmup if self.limit is not None else 0
        if leaks is not None:
            limit, warmup = _arguments_of_leaks(leaks)
        most = None
        if memory is not None:
            most = _to_bytes(memory.args[0] if memory.args else memory.kwargs.get("limit", ""), "limit_gpu_memory")
        return WatchedTest(item.nodeid, None if limit is None else _to_bytes(limit, "limit_gpu_leaks"), warmup, most)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        watched = self._wanted(item)
        if watched is not None:
            item.stash[_WATCHED] = self.now = watched
            _after_own_teardown(item, watched)
            watched.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        # A fixture that outlives the test is not the test's.
        watched = self.now if fixturedef.scope != "function" else None
        if watched is not None:
            watched.skip()
        try:
            return (yield)
        finally:
            if watched is not None:
                watched.count()

    # Within the capture of what the test prints.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        watched = item.stash.get(_WATCHED, None)
        if watched is not None and watched.warmup > 0 and watched.is_begun:
            watched.skip()
            try:
                for _ in range(watched.warmup):
                    item.runtest()
            finally:
                watched.count()
        return (yield)

    # The last of all to see the teardown: what other plugins keep of the test is gone.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        watched = item.stash.get(_WATCHED, None)
        try:
            result = yield
        except BaseException:
            if watched is not None:
                watched.drop()
            raise
        finally:
            self.now = None
        if watched is not None:
            watched.end()
            if watched.broken:
                raise pytest.fail.Exception("\n".join(watched.broken), pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        watched = item.stash.get(_WATCHED, None)
        if watched is not None:
            if call.when != "teardown":
                watched.has_passed = watched.has_passed and report.passed and not hasattr(report, "wasxfail")
            else:
                # Plain values: with xdist they go to another process.
                setattr(report, "strandline", watched.told())
                del item.stash[_WATCHED]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told: Optional[dict[str, Any]] = getattr(report, "strandline", None)
        if told is not None:
            self.told.append(told)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.told:
            from ._watched_test import summary

            lines = summary(self.told, self.lists_all)
            if lines:
                terminalreporter.section("strandline: GPU memory that tests left behind")
                for line in lines:
                    terminalreporter.write_line(line)


def _arguments_of_leaks(marker: pytest.Mark) -> tuple[Union[int, str], int]:
    given = {**dict(zip(("limit", "warmup"), marker.args)), **marker.kwargs}
    limit, warmup = given.pop("limit", 0), given.pop("warmup", 1)
    if given or len(marker.args) > 2 or not isinstance(warmup, int) or warmup < 0:
        raise pytest.UsageError('limit_gpu_leaks takes a limit and a number of calls before it counts: limit_gpu_leaks("1 MB", warmup=3)')
    return limit, warmup


def _let_go(item: pytest.Item) -> None:
    """What pytest still has of a test that is torn down: the values of its fixtures, which it drops a moment later, and the instance of its
    class, which it keeps for the whole session and makes anew where it is asked for."""
    fixtures: Optional[dict[str, Any]] = getattr(item, "funcargs", None)
    if fixtures is not None:
        fixtures.clear()
    vars(item).pop("_instance", None)
    # Before pytest 8.2 the bound method alone keeps the instance.
    if getattr(vars(item).get("_obj"), "__self__", None) is not None:
        setattr(item, "_obj", None)


def _after_own_teardown(item: pytest.Item, watched: WatchedTest) -> None:
    """The test's own fixtures are torn down when `item.teardown` is called; fixtures that outlive it are not yet."""
    teardown = item.teardown

    def then() -> None:
        teardown()
        watched.torn_down(lambda: _let_go(item))

    setattr(item, "teardown", then)
