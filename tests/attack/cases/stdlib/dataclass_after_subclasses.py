# /// stoilo-case
# idea = "fields that come late"
# stopped_by = "language"
# code = "STO-G105"
# ///
import warnings
from abc import ABC
from dataclasses import dataclass


class Inner:
    _inner: object = None


class HasInner(Inner, ABC):
    pass


class Module:
    _module: object = None


class HasModule(Module, ABC):
    pass


def run(kwargs):
    dataclass(Inner)
    dataclass(Module)
    found = warnings.catch_warnings()
    HasInner.register(type(found))
    if hasattr(found, "_inner"):
        match found:
            case HasInner(inner):
                found = inner
    HasModule.register(type(found))
    match found:
        case HasModule(module):
            return module.sys.modules["builtins"].open(kwargs["canary"]).read()
