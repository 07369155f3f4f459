"""Whether this system can have a jail at all."""

from __future__ import annotations

import sys

from stoilo.core.errors import PolicyRefusal


def check_platform() -> None:
    """Refuse with ``STO-S001`` outside Linux, before anything of the jail is imported."""
    if not sys.platform.startswith("linux"):
        raise PolicyRefusal(
            "STO-S001",
            "the jail needs Linux",
            hint="use a Linux virtual machine or container",
        )
