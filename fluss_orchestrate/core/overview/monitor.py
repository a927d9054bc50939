"""One pass per interval, however many look: a monitor makes the passes and keeps the last one.

Who looks gets the newest overview at once. A pass is made by the thread of the monitor and by
nothing else, so there is never a second one under way, and the next one begins an interval after
the last. While nobody looks for `idle_s`, no pass is made, unless the monitor records history.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from fluss_client.errors import FlussError
from fluss_orchestrate.core.overview.gathering import Gathered
from fluss_orchestrate.core.overview.samples import Samples

log = logging.getLogger(__name__)
INTERVAL_S = 5.0
IDLE_S = 300.0
FIRST_PASS_WAIT_S = 5.0
"""A page is shown without figures after it, and follows: a large cluster takes longer."""
PASS_WAIT_S = 30.0
ANSWERS_KEPT_MAX = 256
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """The newest overview.

    Attributes:
        gathered: The result of the pass; None if no pass has succeeded yet.
        problem: Why the last pass failed; empty if it did not.
        remembered: Whether it is from an earlier process, without the details of buckets.
    """

    gathered: Gathered | None
    problem: str = ""
    remembered: bool = False


class Monitor:
    """Makes passes over one cluster and keeps the newest overview.

    Args:
        gather: Makes one pass; it is called on the thread of the monitor.
        samples: Where overviews are recorded; None to keep only the newest, in memory.
        interval_s: The time from the end of a pass to the beginning of the next.
        idle_s: Passes stop when nobody has looked for so long; None to go on, for history.
    """

    def __init__(
        self,
        gather: Callable[[], Gathered],
        samples: Samples | None = None,
        interval_s: float = INTERVAL_S,
        idle_s: float | None = None,
    ) -> None:
        self.interval_s = interval_s
        self.samples = samples
        self.passes = 0
        """How many passes were begun."""
        self._completed = 0
        self._gather = gather
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._looked_at = time.monotonic()
        self._wanted = False
        self._stopped = False
        kept = samples.newest() if samples is not None else None
        self._look = Look(None if kept is None else Gathered(kept), remembered=kept is not None)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that makes the passes."""
        with self._changed:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._run, name="fluss-console-monitor", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop it, after the pass that is under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def look(self, wait_s: float = FIRST_PASS_WAIT_S) -> Look:
        """Return the newest overview; wait only for the first pass ever. Blocks up to `wait_s`."""
        with self._changed:
            self._looked_at = time.monotonic()
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._look.gathered or self._look.problem or self._stopped, wait_s
            )
            return self._look

    def pass_now(self, wait_s: float = PASS_WAIT_S) -> Look:
        """Make another pass soon, as after an action, and return its result."""
        with self._changed:
            before = self.passes
            self._looked_at = time.monotonic()
            self._wanted = True
            self._changed.notify_all()
            # The pass that is under way may have looked before the action.
            self._changed.wait_for(lambda: self._completed > before or self._stopped, wait_s)
            return self._look

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                self.passes += 1
                self._wanted = False
            found = self._pass()
            with self._changed:
                self._look = found
                self._completed = self.passes
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._wanted or self._stopped, self.interval_s)
                self._changed.wait_for(self._is_due)

    def _is_due(self) -> bool:
        if self._stopped or self._wanted or self._idle_s is None:
            return True
        return time.monotonic() - self._looked_at < self._idle_s

    def _pass(self) -> Look:
        try:
            gathered = self._gather()
        except FlussError as error:
            log.warning("the pass failed: %s", error)
            return Look(self._look.gathered, " ".join(str(error).split()), self._look.remembered)
        except Exception as error:
            # The pages must say it; a thread that ends silently would show old figures for ever.
            log.exception("the pass failed")
            problem = f"the pass failed: {type(error).__name__}"
            return Look(self._look.gathered, problem, self._look.remembered)
        if self.samples is not None:
            self._record(gathered)
        return Look(gathered)

    def _record(self, gathered: Gathered) -> None:
        assert self.samples is not None
        try:
            self.samples.add(gathered.overview)
        except Exception:
            # A full disk must not hide the figures.
            log.warning("the samples cannot be written", exc_info=True)


class Answers:
    """Answers that are asked for by page, such as the events of a checkpoint, kept for an interval.

    Viewers of one page share an answer: who comes while it is looked up waits for it.
    """

    def __init__(self, kept_s: float, answers_max: int = ANSWERS_KEPT_MAX) -> None:
        self._kept_s = kept_s
        self._answers_max = answers_max
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, ask: Callable[[], T]) -> T:
        """Return the answer of `ask`, or one that is not older than the interval. Blocks.

        Args:
            key: What is asked for.
            ask: Finds the answer; an error is not kept.
        """
        with self._lock:
            one_at_a_time = self._locks.setdefault(key, threading.Lock())
        with one_at_a_time:
            with self._lock:
                found = self._found.get(key)
            if found is not None and time.monotonic() - found[0] < self._kept_s:
                answer: T = found[1]
                return answer
            answer = ask()
            with self._lock:
                self._found[key] = (time.monotonic(), answer)
                self._found.move_to_end(key)
                while len(self._found) > self._answers_max:
                    gone, _ = self._found.popitem(last=False)
                    self._locks.pop(gone, None)
            return answer

    def forget(self) -> None:
        """Forget all answers, as after an action."""
        with self._lock:
            self._found.clear()
