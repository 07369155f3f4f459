"""What this installation or system lacks for a command, by name."""

from __future__ import annotations

import importlib.util
import sys

from stoilo.core.errors import PolicyRefusal, UsageError

# extra → the packages that it brings and our modules import (pyproject.toml).
PACKAGES = {
    "executor": (
        "cryptography",
        "numpy",
        "pyseccomp",
        "securesystemslib",
        "tuf",
    ),
    "server": (
        "alembic",
        "grpc_health",
        "prometheus_client",
        "pymysql",
        "sqlalchemy",
        "starlette",
        "uvicorn",
    ),
    "web": ("jinja2",),
}


def missing_extra(module: str) -> UsageError | None:
    """Return the error ``STO-U002`` for a missing module, None when no extra has it."""
    package = module.partition(".")[0]
    for extra, packages in PACKAGES.items():
        if package in packages:
            return UsageError(
                "STO-U002",
                f"this command needs the {extra} extra ({package} is missing)",
                hint=f"pip install 'stoilo[{extra}]'",
            )
    return None


def require_extra(extra: str) -> None:
    """Raise ``STO-U002`` unless every package of `extra` can be found."""
    for package in PACKAGES[extra]:
        if importlib.util.find_spec(package) is None:
            error = missing_extra(package)
            assert error is not None  # noqa: S101 - the table is ours
            raise error


def check_platform() -> None:
    """Refuse with ``STO-S002`` outside Linux, before anything of the jail is imported."""
    if not sys.platform.startswith("linux"):
        raise PolicyRefusal(
            "STO-S002",
            "the jail needs Linux",
            hint="use a Linux virtual machine or container",
        )
