"""What BOINC's own clients run, frozen beside a server with a development root.

Nobody needs it before the first such client asks for work, so that is when it begins: in a
process of its own, of low priority. Its log is ``DIR/logs/programs.log``, its files lie in
``DIR/run/programs`` until it ends. From then on tasks can name what was frozen and nothing
else. So where this installation has torch or described libraries, which are gigabytes when
frozen, it is the operator's to choose: he is told instead.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from stoilo.server.operations.processes import ChildSpec, SupervisedChild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.data_directory import DataDir
    from stoilo.server.release.flavors import Offered

LOGGER = logging.getLogger(__name__)
BEING_MADE: Final = (
    "This project is making its programs for BOINC clients; it takes some minutes. "
    "Your client will ask again by itself."
)
NOT_MADE: Final = (
    "This project has not made its programs for BOINC clients yet. "
    "Its operator was told."
)
BEING_MADE_S = 60.0
NOT_MADE_S = 600.0
NICENESS = 10  # behind all that serves, and yet some of a busy machine
LIGHT: Final = ("pure", "numeric")  # levels; what a wider one needs is far larger
MODULE = "stoilo"  # run as ``python -m``
_SHOWN = 300  # characters of a failure


def light_flavors(offered: Sequence[Offered]) -> tuple[str, ...]:
    """Return the names of those to freeze unasked; none where a large one can run here."""
    names = tuple(
        one.name for one in offered if one.level in LIGHT and not one.libraries
    )
    others = len(names) < len(offered)
    if any(one.libraries for one in offered) or (others and find_spec("torch")):
        return ()
    return names


class ProgramMaking:
    """Makes them once, when `lack` was called; `check` is for the main thread alone."""

    def __init__(
        self,
        home: DataDir,
        offered: Callable[[], Sequence[Offered]],  # what tasks may name now
    ) -> None:
        self._home = home
        self._offered = offered
        self._asked = False
        self._child: SupervisedChild | None = None
        self._began = 0.0
        self._failed = False

    def lack(self) -> tuple[str, float]:
        """Note that a client waits; return what it is told and its pause, s. Any thread."""
        self._asked = True
        failed = (NOT_MADE, NOT_MADE_S)
        return failed if self._failed else (BEING_MADE, BEING_MADE_S)

    def check(self) -> None:
        """Begin when somebody waits, and see whether it has ended."""
        if self._child is not None:
            self._see_end(self._child)
        elif self._asked and not self._failed:
            self._begin()

    def stop(self) -> None:
        """End it, unfinished or not."""
        if self._child is not None:
            if (pid := self._child.pid) is not None:  # with what it has started
                os.killpg(pid, signal.SIGTERM)
            self._child.stop()
            self._child = None
            shutil.rmtree(self._home.part("run", "programs"), ignore_errors=True)

    def _begin(self) -> None:
        names, data = light_flavors(self._offered()), self._home.path
        if not names:
            self._failed = True
            LOGGER.warning(
                "a BOINC client waits for programs; choose what to freeze of what tasks may "
                "name now, the rest is switched off: "
                "stoilo boinc programs --data %s --flavor pure --flavor numeric",
                data,
            )
            return
        flavors = [word for name in names for word in ("--flavor", name)]
        log = self._home.part("logs") / "programs.log"
        log.unlink(missing_ok=True)
        spec = ChildSpec(
            name="BOINC's programs",
            module=MODULE,
            arguments=("boinc", "programs", "--data", str(data), "--yes", *flavors),
            log=log,
        )
        folder = str(self._home.part("run", "programs"))
        self._child = SupervisedChild(spec, {**os.environ, "TMPDIR": folder})
        self._began = time.monotonic()
        self._child.start()
        if (pid := self._child.pid) is not None:
            os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
        LOGGER.warning(
            "a BOINC client waits: freezing verifier and %s in the background; log: %s",
            ", ".join(names),
            log,
        )

    def _see_end(self, child: SupervisedChild) -> None:
        code = child.exit_code
        if code is None:
            return
        self.stop()
        took = time.monotonic() - self._began
        if code == 0:
            self._asked = False
            LOGGER.warning("BOINC clients have their programs, after %.0f s", took)
            return
        self._failed = True
        said = child.spec.log.read_text(errors="replace").strip()[-_SHOWN:]
        LOGGER.warning(
            "BOINC's programs could not be made (exit code %d): %s; when that is mended: "
            "stoilo boinc programs --data %s",
            code,
            said,
            self._home.path,
        )
