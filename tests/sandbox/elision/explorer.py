"""Programs made of choices: each choice builds one statement out of what is in reach.

The choices come from hypothesis (or a random generator), the objects from the program's
own past: attributes are picked among those that an object really has, guarded and refused
ones included. Runs in a forked child with limits, because a program may loop or fill
memory. ``python explorer.py LEVEL PROGRAMS SEED`` explores in a process of its own.
"""

from __future__ import annotations

import os
import pickle
import random
import resource
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from recorder import Laboratory
from samples import CONSTANTS, LURES, SAMPLES, SPECIAL

from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import prepare_runtime

SECONDS = 4
MEMORY = 1 << 30


class Exhausted(Exception):
    """No choices are left: the program ends."""


class Choices:
    """Numbers that decide; each is used once."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)

    def number(self) -> int:
        for number in self._numbers:
            return number
        raise Exhausted

    def of(self, options: Sequence[str]) -> str:
        return options[self.number() % len(options)]


@dataclass
class Finding:
    """What one program did (crosses the pipe between child and parent)."""

    program: list[str] = field(default_factory=list)
    reached: int = 0
    refused: int = 0
    leaks: list[str] = field(default_factory=list)
    ended: str = ""


class Explorer:
    """Builds and runs one program."""

    def __init__(self, runtime, numbers: Sequence[int]) -> None:
        self.choices = Choices(numbers)
        self.laboratory = Laboratory(runtime)
        self.modules = sorted(runtime.level.modules)
        self.level = runtime.level
        known = [one for one in SAMPLES if one.partition(".")[0] in self.modules]
        library = known[-1].partition(".")[0]  # the level's own comes last
        own = [one for one in known if one.startswith(library)]
        self.samples = known + own * (len(known) // len(own))
        self.count = 0
        self.finding = Finding()
        self.forms = [
            getattr(self, name)
            for name in sorted(dir(self))
            if name.startswith("make_")
        ]

    def run(self) -> Finding:
        try:
            while True:
                self._step()
        except Exhausted:
            pass
        self.finding.reached = self.laboratory.record.reached
        self.finding.leaks = self.laboratory.record.leaks
        return self.finding

    def _step(self) -> None:
        self.count += 1
        statement = self.forms[self.choices.number() % len(self.forms)]()
        body = "\n".join(f"    {line}" for line in statement.splitlines())
        guarded = (
            f"try:\n{body}\nexcept BaseException as error:\n    {self.new} = error"
        )
        self.finding.program.append(guarded)
        try:
            self.finding.refused += not self.laboratory.run(guarded)
        except SyntaxError:
            self.finding.refused += 1

    # What is in reach

    @property
    def new(self) -> str:
        return f"v{self.count}"

    def old(self) -> str:
        known = [name for name in self.laboratory.names if name[0] == "v"]
        return self.choices.of(known) if known else "object"

    def operand(self) -> str:
        return self.old() if self.choices.number() % 3 else self.choices.of(CONSTANTS)

    def attribute(self, name: str) -> str:
        if self.choices.number() % 5 == 0:
            return self.choices.of(LURES)
        value = self.laboratory.names.get(name)
        try:
            found = sorted(one for one in dir(value) if one.isidentifier())
        except Exception:  # noqa: BLE001 - the object's own __dir__
            found = []
        public = [one for one in found if not one.startswith("_")]
        if self.choices.number() % 3 and public:
            return self.choices.of(public)
        return self.choices.of(found or LURES)

    def arguments(self) -> str:
        return ", ".join(self.operand() for _ in range(self.choices.number() % 3))

    # Forms of statement

    def make_import(self) -> str:
        module = self.choices.of(self.modules)
        names = self.level.modules[module].names
        if self.choices.number() % 2 and names:
            return f"from {module} import {self.choices.of(names)} as {self.new}"
        return f"import {module} as {self.new}"

    def make_sample(self) -> str:
        sample = self.choices.of(self.samples)
        return f"import {sample.partition('.')[0]}\n{self.new} = {sample}"

    make_sample_again = make_another_sample = make_sample

    def make_read(self) -> str:
        old = self.old()
        return f"{self.new} = {old}.{self.attribute(old)}"

    def make_read_dynamically(self) -> str:
        old = self.old()
        return f"{self.new} = getattr({old}, {self.attribute(old)!r})"

    def make_call(self) -> str:
        return f"{self.new} = {self.old()}({self.arguments()})"

    make_called_again = make_call

    def make_method_call(self) -> str:
        old = self.old()
        return f"{self.new} = {old}.{self.attribute(old)}({self.arguments()})"

    def make_item(self) -> str:
        return f"{self.new} = {self.operand()}[{self.operand()}]"

    def make_loop(self) -> str:
        return f"for _, {self.new} in zip(range(3), {self.operand()}):\n    pass"

    def make_unpacking(self) -> str:
        return f"{self.new}, *rest = zip(range(2), {self.operand()})"

    def make_comprehension(self) -> str:
        old = self.old()
        name = self.attribute(old)
        return f"{self.new} = [x.{name} for x in ({old},) if x]"

    def make_format(self) -> str:
        old = self.old()
        name = self.attribute(old)
        forms = (
            f"'{{0.{name}}}'.format({old})",
            f"'{{a.{name}}}'.format_map({{'a': {old}}})",
            f"str.format('{{:{{0.{name}}}}}', {old})",
            f"f'{{{old}.{name}!r}}'",
            f"format({old}, {self.operand()})",
        )
        return f"{self.new} = {self.choices.of(forms)}"

    def make_match(self) -> str:
        old = self.old()
        name = self.attribute(old)
        cases = (
            f"object({name}={self.new})",
            f"{{'a': {self.new}, **rest}}",
            f"[{self.new}, *_]",
            f"{old}.{name}",
            f"{old}({name}={self.new})",
        )
        return f"match {old}:\n    case {self.choices.of(cases)}:\n        pass"

    def make_class(self) -> str:
        base = self.old() if self.choices.number() % 2 else "object"
        name = self.attribute(base)
        special = self.choices.of(SPECIAL)
        decorator = f"@{self.old()}\n" if self.choices.number() % 4 == 0 else ""
        return (
            f"{decorator}class {self.new}({base}):\n"
            f"    {name} = {self.operand()}\n"
            f"    def read(self): return self.{name}\n"
            f"    def write(self, v=None): self.{name} = v\n"
            f"    def above(self, *a): return super().{name}\n"
            f"    def {special}(self, *a): return [self, a, [x.{name} for x in a]]"
        )

    def make_private_class(self) -> str:
        base = self.old()
        value = self.laboratory.names.get(base)
        private = [one for one in dir(value) if one[0] == "_" and one[1:2] != "_"]
        name = self.choices.of(private or ["_x"])
        return (
            f"class {self.new}:\n"
            f"    def read(self): return self.{name}\n"
            f"    def other(self, o): return o.{name}\n"
            f"    def write(self, v=1): self.{name} = v\n"
            f"    def nested(self): return [self.{name} for _ in 'a']"
        )

    def make_unbound_call(self) -> str:
        own = [
            name
            for name, value in self.laboratory.names.items()
            if isinstance(value, type) and "read" in vars(value)
        ]
        method = self.choices.of(("read", "write", "above", "nested"))
        cls = self.choices.of(own or ["object"])
        return f"{self.new} = {cls}.{method}({self.operand()})"

    make_unbound_again = make_unbound_call

    def make_function(self) -> str:
        decorator = f"@{self.old()}\n" if self.choices.number() % 2 else ""
        old = self.old()
        body = self.choices.of(("return a", "yield a", f"return {old}.{'x'}"))
        return f"{decorator}def {self.new}(*a, k={self.operand()}):\n    {body}"

    def make_with(self) -> str:
        return f"with {self.old()} as {self.new}:\n    pass"

    def make_write(self) -> str:
        old = self.old()
        name = self.attribute(old)
        forms = (
            f"{old}.{name} = {self.operand()}",
            f"setattr({old}, {name!r}, {self.operand()})",
            f"{old}.{name} += {self.operand()}",
            f"del {old}.{name}",
            f"for {old}.{name} in [{self.operand()}]: pass",
            f"[*{old}.{name}] = {self.operand()}",
        )
        return self.choices.of(forms)

    def make_type(self) -> str:
        form = self.choices.of(("type({})", "{}.__class__", "super({}, {})"))
        old = self.old()
        return f"{self.new} = {form.format(old, self.operand())}"

    def make_operation(self) -> str:
        operator = self.choices.of(("+", "*", "%", "|", "==", "<", "in", "is", "@"))
        return f"{self.new} = {self.operand()} {operator} {self.operand()}"

    def make_record(self) -> str:
        old = self.old()
        name = self.attribute(old)
        fields = f"[({name!r}, {self.operand()})]"
        return f"{self.new} = {self.old()}('T', {fields})"

    def make_exception(self) -> str:
        return f"raise {self.operand()} from {self.operand()}"


def explore(runtime, numbers: Sequence[int]) -> Finding:
    """Run the program that `numbers` stand for in a child; return what it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_child(runtime, numbers, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if not data:
        return Finding(ended=f"status {status}")
    return pickle.loads(data)  # noqa: S301 - our own child, before anything reads it


def _run_child(runtime, numbers: Sequence[int], writing: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: PTH123, SIM115
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.alarm(3 * SECONDS)
        warnings.simplefilter("ignore")
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        finding = Explorer(runtime, numbers).run()
        os.write(writing, pickle.dumps(finding))
    finally:
        os._exit(0)


def random_programs(seed: int | str, count: int) -> Iterator[list[int]]:
    """Yield `count` lists of choices."""
    chooser = random.Random(seed)
    for _ in range(count):
        yield [chooser.randrange(1 << 16) for _ in range(300)]


def main(level: str, count: str, seed: str) -> int:
    """Explore a level; print what was reached and every leak; return 1 for a leak."""
    runtime = prepare_runtime(load_level(level))
    found = [explore(runtime, one) for one in random_programs(seed, int(count))]
    reached = sum(one.reached for one in found)
    leaks = [leak for one in found for leak in one.leaks]
    crashes = sum(one.ended == f"status {signal.SIGSEGV.value}" for one in found)
    print(f"{level}: {count} programs, {reached} objects reached, {crashes} crashes")
    print("\n\n".join(leaks))
    return 1 if leaks or crashes or reached < 50 * int(count) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
