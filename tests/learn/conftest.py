"""Asynchronous tests of learning run in a loop of their own."""

import asyncio
import inspect
import shutil

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine test to its end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session", autouse=True)
def torch_leaves_nothing(nothing_is_left, own_temporary_directory):  # noqa: ARG001 - it ends before that one
    """Remove the folder that torch makes with its first optimiser."""
    yield
    for folder in own_temporary_directory.glob("torchinductor_*"):
        shutil.rmtree(folder)
