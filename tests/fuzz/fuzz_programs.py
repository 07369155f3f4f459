"""Fuzz the language layer with the kernel layer as the referee.

``python tests/fuzz/fuzz_programs.py [SECONDS] [SEED] [FOLDER]`` mutates the programs of
tests/attack/cases, honest and hostile, and runs what the gate's rules admit with the
language layer on inside the jail. There every system call that opens or asks for something
is denied and named; so when a program is killed at a call, crashes, leaves the interpreter,
shows the canary or makes the mark, the language layer let something through. Such programs
are saved in FOLDER and printed; exit 1.
"""

import ast
import copy
import dataclasses
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.errors import PolicyRefusal
from stoilo.core.levels import SyscallRules
from stoilo.core.types import RunLimits
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.transformer import compile_source
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.report import read_outcome
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.suite.case import Kind, find_cases, read_case
from stoilo.sandbox.suite.programs import Ground
from tests.support.turns import turns_within

CASES = Path(__file__).parents[1] / "attack" / "cases"
AREAS = frozenset({"language", "stdlib", "numpy", "torch", "benign", "benign_numeric"})
LIMITS = RunLimits(
    cpu_s=1, wall_s=4, memory_bytes=256 << 20, result_bytes=1 << 20, output_bytes=65536
)
BREACHES = frozenset({"STO-S010", "STO-S020", "STO-S021"})
SILENT = SyscallRules(errno={"ENOSYS": ("clone3",), "EPERM": ("tgkill",)})
"""What may fail without a word: glibc's first try, and abort(3) on its way out."""

LURES = (
    *("__class__", "__globals__", "__dict__", "__subclasses__", "__self__", "gi_frame"),
    *(
        "__traceback__",
        "tb_frame",
        "f_back",
        "__code__",
        "__init__",
        "__reduce__",
        "mro",
    ),
    *("_x", "format", "obj", "fget", "func", "ctypes", "base", "gen", "tofile", "dump"),
    *("load", "fromfile", "read", "name", "args", "real", "copy", "type", "fields"),
    *("_os", "_sys", "modules", "system", "path", "open", "__builtins__", "__loader__"),
)
HUNTER = '''
def hunt(value, depth=0):
    """Use whatever power `value` gives."""
    for name in ("open", "system", "popen", "read_text", "load", "loads", "fromfile", "tofile",
                 "savez", "loadtxt", "dump", "get_data", "modules", "path", "os", "sys", "io",
                 "exec", "eval", "compile", "import_module", "environ", "builtins", "CDLL",
                 "_os", "_sys", "__globals__", "__builtins__", "__subclasses__", "mmap"):
        try:
            found = getattr(value, name)
        except BaseException:
            continue
        try_call(found)
        if depth < 2:
            hunt(found, depth + 1)
    try_call(value)
    return value


def try_call(found):
    for arguments in ((CANARY,), ("import os; os.getcwd()", {}), ("os",), ()):
        try:
            found(*arguments)
        except BaseException:
            pass

'''


@dataclasses.dataclass(frozen=True)
class Finding:
    """A program that got through the language layer."""

    source: str
    level: str
    reason: str


class Corpus:
    """Programs and their parts.

    Attributes:
        programs: (tree, level) of every case that a task may be.
        expressions: parts to splice.
        statements: parts to splice.
    """

    def __init__(self) -> None:
        self.programs, self.expressions, self.statements = [], [], []

    def add_cases(self, levels):
        """Add the cases of these levels' names."""
        for path in find_cases(CASES):
            case = read_case(path, CASES)
            level = case.header.level or "pure"
            area = case.name.partition("/")[0]
            if case.header.run is Kind.TASK and area in AREAS and level in levels:
                self.add(case.text, level)
        return self

    def add(self, text, level) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        nodes = list(ast.walk(tree))
        if len(nodes) > 4000:
            return
        self.programs.append((tree, level))
        self.expressions += [one for one in nodes if _is_value(one)]
        self.statements += [one for one in nodes if isinstance(one, ast.stmt)]


def _is_value(node):
    plain = isinstance(node, ast.expr) and not isinstance(node, ast.Starred | ast.Slice)
    return plain and isinstance(getattr(node, "ctx", None), ast.Load | None)


class Mutation(ast.NodeTransformer):
    """Changes one node of a tree, chosen beforehand."""

    def __init__(self, chooser, corpus, target) -> None:
        self.chooser, self.corpus, self.target = chooser, corpus, target

    def visit(self, node):
        if isinstance(node, ast.JoinedStr | ast.pattern):
            return node
        if node is not self.target:
            return self.generic_visit(node)
        if _is_value(node):
            return self._value(node)
        return self._statement(node) if isinstance(node, ast.stmt) else node

    def _value(self, node):
        other = copy.deepcopy(self.chooser.choice(self.corpus.expressions))
        name = self.chooser.choice(LURES)
        read = ast.Attribute(ast.Constant(f"{{0.{name}}}"), "format", ast.Load())
        nothing = ast.arguments([], [], ast.arg("a"), [], [], None, [])
        forms = (
            other,
            other,
            ast.Attribute(node, name, ast.Load()),
            _call("getattr", node, ast.Constant(name)),
            _call("hunt", node),
            _call("hunt", node),
            ast.Call(node, [other], []),
            _call("type", node),
            ast.Subscript(node, other, ast.Load()),
            ast.Call(read, [node], []),
            ast.IfExp(_call("hunt", node), node, other),
            ast.Lambda(nothing, other),
        )
        return self.chooser.choice(forms)

    def _statement(self, node):
        other = copy.deepcopy(self.chooser.choice(self.corpus.statements))
        caught = ast.ExceptHandler(
            ast.Name("BaseException", ast.Load()),
            "error",
            [ast.Expr(_call("hunt", ast.Name("error", ast.Load())))],
        )
        match self.chooser.randrange(5):
            case 0:
                return [node, other]
            case 1:
                return [other, node]
            case 2:
                return ast.Pass()
            case 3:
                return ast.Try([node], [caught], [], [])
            case _:
                return other


def _call(name, *args):
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def mutate(chooser, corpus, tree):
    """Return a changed copy of `tree` as text."""
    tree = copy.deepcopy(tree)
    for _ in range(chooser.randint(1, 4)):
        targets = [
            one for one in ast.walk(tree) if _is_value(one) or isinstance(one, ast.stmt)
        ]
        tree = Mutation(chooser, corpus, chooser.choice(targets)).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


class Referee:
    """Runs programs in jails that let nothing pass in silence; says what got through."""

    def __init__(self, levels, ground) -> None:
        self.ground = ground
        self.levels = levels
        self.jails = {
            name: Jail(strict(level), TASK_JOB) for name, level in self.levels.items()
        }

    def close(self) -> None:
        for jail in self.jails.values():
            jail.close()

    def admits(self, text, level) -> bool:
        """Whether the rules that need no running let `text` through."""
        try:
            compile_source(text, self.levels[level])
        except PolicyRefusal:
            return False
        return True

    def run(self, text, level, limits=LIMITS):
        """Return the outcome, and why it is a breach of the language layer or ''."""
        places = {"canary": str(self.ground.canary), "mark": str(self.ground.mark)}
        request = TaskRequest(text, "run", skeleton.encode(places))
        outcome = read_outcome(self.jails[level].run(request.encode(), limits))
        shown = (repr(outcome.value), outcome.output, outcome.error)
        if self.ground.was_reached(*shown):
            return outcome, "reached what lies outside"
        if outcome.code in BREACHES:
            return outcome, f"{outcome.code} {outcome.error}"
        return outcome, ""


def strict(level):
    """Return `level` where no denied call fails politely."""
    rules = msgspec.structs.replace(level.syscalls, errno=SILENT.errno)
    return msgspec.structs.replace(level, syscalls=rules)


def fuzz(turns, seed, levels=None, corpus=None):
    """Return (how many ended how, findings) after one program for each of `turns`.

    `levels` by name: the shipped ones without a large library where None is given.
    """
    levels = levels or {name: load_level(name) for name in ("pure", "numeric")}
    corpus = corpus or Corpus().add_cases(levels)
    chooser, ended, findings = random.Random(seed), Counter(), []
    with Ground.make() as ground:
        referee = Referee(levels, ground)
        hunter = f"CANARY = {str(ground.canary)!r}\n{HUNTER}"
        for _ in turns:
            tree, level = chooser.choice(corpus.programs)
            try:
                text = hunter + mutate(chooser, corpus, tree)
            except (ValueError, RecursionError, TypeError):  # no text for such a tree
                text = "("
            if not referee.admits(text, level):
                ended["not admitted"] += 1
                continue
            outcome, reason = referee.run(text, level)
            ended[outcome.status.value] += 1
            if reason:
                findings.append(Finding(text, level, reason))
        referee.close()
    return ended, findings


def save(findings, folder):
    """Write each finding as a program that says why it is one."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, found in enumerate(findings):
        note = f"# level: {found.level}\n# {found.reason}\n"
        (folder / f"finding_{number}.py").write_text(note + found.source + "\n")


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else "build/findings")
    ended, findings = fuzz(turns_within(seconds), seed)
    print(f"seed {seed}: {dict(ended)}, {len(findings)} findings")
    save(findings, folder)
    for found in findings:
        print(f"{found.level}: {found.reason}")
    sys.exit(1 if findings else 0)
