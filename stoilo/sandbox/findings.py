"""What the language layer says about a place in the source, by stable code."""

from __future__ import annotations

import ast

import msgspec

from stoilo.core.finding import Finding, Severity

__all__ = ["Rule", "finding_at"]


class Rule(msgspec.Struct, frozen=True):
    """One reason to refuse: code and what to do instead."""

    code: str
    hint: str


SYNTAX = Rule(
    "STO-G001", "run the file with Python 3.11 and correct the error it names"
)
TOO_LARGE = Rule("STO-G002", "split long expressions and deeply nested blocks")
FINALLY = Rule("STO-G003", "move the inner try/finally into a function of its own")
LITERAL = Rule("STO-G004", "send large data as an argument")
NAME = Rule("STO-G010", "choose a name without two leading underscores")
ATTRIBUTE = Rule("STO-G011", "use the public interface of the object")
DUNDER = Rule("STO-G012", "define a plain method and call it by name")
ASYNC = Rule("STO-G013", "a task runs alone in one thread: write a plain function")
SYNTAX_KIND = Rule("STO-G014", "rewrite it with ordinary statements")
METACLASS = Rule("STO-G015", "use a class decorator, __init_subclass__ or abc.ABCMeta")
STAR = Rule("STO-G016", "name what you import")
RELATIVE = Rule("STO-G017", "a task is one module: define what you need in it")
MODULE = Rule("STO-G018", "`stoilo policy show` lists each level's modules")
MODULE_NAME = Rule("STO-G019", "`stoilo policy show` lists each module's names")
BUILTIN = Rule("STO-G020", "a task only computes: it gets arguments, returns a value")


def finding_at(node: ast.AST, rule: Rule, message: str) -> Finding:
    """Return an error finding at `node`; lines and columns from 1."""
    line = getattr(node, "lineno", 1) or 1
    column = (getattr(node, "col_offset", 0) or 0) + 1
    return Finding(
        code=rule.code,
        severity=Severity.ERROR,
        line=line,
        column=column,
        end_line=getattr(node, "end_lineno", None) or line,
        end_column=(getattr(node, "end_col_offset", None) or 0) + 1,
        message=message,
        hint=rule.hint,
    )
