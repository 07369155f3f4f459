"""Write the generated pages of docs/reference from the code: ``make docs``.

A page here is its introduction (below), then text that the code itself gives. The tests in
``tests/docs`` compare the committed pages with what this module returns.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import click
import msgspec

import stoilo
from stoilo.cli.explain import render_markdown
from stoilo.cli.main import cli
from stoilo.cli.schemas import SCHEMAS, render_schema
from stoilo.core import types
from stoilo.core.codebook import load_codebook
from stoilo.core.levels import Level, load_levels
from stoilo.core.libraries import Library, load_libraries
from stoilo.core.types import BOUNDS, Redundancy, RunLimits
from stoilo.learn.traffic.metrics import METRICS as TRAFFIC_METRICS
from stoilo.low_level.redundancy import CreateOptions
from stoilo.sandbox.kernel.filter_text import render_filter
from stoilo.server.config import ServerConfig
from stoilo.server.watching.metrics import METRICS, Metric

__all__ = ["PAGES", "help_text", "render_architecture", "write_pages"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
HELP_WIDTH = 78
NOTE = "<!-- made by `make docs` from the code; do not edit -->\n"

CLI_INTRO = """\
# Commands

`stoilo` is one program with groups. Everywhere: `--json` prints one object, results go to
stdout and talk to stderr, and the exit code means the same:

| code | meaning |
|---|---|
| 0 | done |
| 1 | our fault, or this machine's |
| 2 | wrong usage, or not what the command reads |
| 3 | refused by a policy, a level or a mechanism that is missing |
| 4 | verification failed, or the run was killed |
| 5 | the task's own error |
| 6 | you stopped waiting, or it is not there yet |
| 7 | not reachable |
| 8 | not permitted |
| 130 | interrupted |

Environment: `STOILO_CONNECTION` (connection file), `STOILO_DATA` (for `audit prove`) and
`STOILO_SERVER_*` (settings of `stoilo up`; see `stoilo config show --origin`).

`stoilo up` prints one JSON line when everything answers:
`{"grpc", "http", "project", "token", "connection", "volunteers"}`, ports as bound.

`sandbox run` and `sandbox probe` with `--json` end with one object:
`{"status", "value", "error", "code", "layer", "output", "limit", "usage"}`.

| what happened | status | layer | exit |
|---|---|---|---|
| it returned (run) or ended (probe) | `ok` | null | 0 |
| refused before it ran, or no Python | `refused` | `gate` | 3 |
| a guard's refusal reached the top | `refused` | `language` | 3 |
| this machine lacks a mandatory mechanism | `refused` | `kernel` | 3 |
| exception, or an exit code that is not 0 | `user_error` | `language` | 5 |
| a value that cannot be encoded | `user_error` | `result` | 5 |
| time, memory, output or result over the limit, named in `limit` | `killed` | `limits` | 4 |
| a forbidden system call, named in `error` | `killed` | `kernel` | 4 |
"""

API_INTRO = """\
# Python

`import stoilo` loads neither gRPC nor numpy; names are imported when first used. Every
method of `Connection`, `StagedTask` and `SubmittedTask` that waits is `async`; the `Sync…`
classes have the same methods without `await`. How to start:
[tutorial](../tutorial/first-task.md). What may travel: [capture](capture.md),
[values](values.md).

Outcomes are *returned*: the value, a `UserError` (your function raised, on a quorum of
volunteers; it is also an instance of the builtin exception that was raised), a `SystemError`
(no agreement, a validator's fault, cancelled, expired; see its `code`) or a `TimedOut`
(only you stopped waiting; it holds the task's id). `stoilo.Executor` raises them instead.
Everything else that goes wrong raises `StoiloError` with `code`, `message` and `hint`.

`stoilo.low_level` holds the names of the thesis: `UserError`, `SystemError`, `TaskResult`,
`TimedOut`, `redundancy` (`CreateOptions`, `TRIVIAL_OPTIONS`, `CLASSIC_OPTIONS`) and
`flavors` (`DEFAULT`, `names()`). `stoilo.testing` holds fakes for programs built on stoilo.
`stoilo.learn` holds trainers and `fit` ([how](../howto/train-a-model.md)); `stoilo.ml` and
`stoilo.ddl` are the thesis's names for its trainers.
"""

LEVELS_INTRO = """\
# Levels

A level is data (`stoilo/policies/levels/*.toml`; each adds to the one that it `extends`) and
part of the verifier's release: what a task may import and call, which system calls the
kernel layer lets through, and limits. A task's level is the lowest that admits its source
and arguments; `level=` may raise it, never lower it. A volunteer opts in
to a highest level ([opt-in](opt-in.md)).

No level opens a file, a socket or a process. `stoilo policy show LEVEL` lists every name of
every module. Limits are *default / largest*; in force is the lowest of admission, level and
opt-in. `gpu` is a reserved name: an opt-in may name it, no task can.

Own classes may extend the classes below (`+`: and what their library derives from them), plain
types and exceptions. In parentheses: the names of such a class that an own class may define, by
itself or by a mixin; every name that the library class does not know is free, too. Special
methods such as `__getitem__` are free. What is not listed is held, not extended (`STO-G105`).
"""

LIBRARIES_INTRO = """\
# Libraries

A library is data (`stoilo/policies/libraries/<import name>.toml`, a target of the offline
policy role): which names of an installed package tasks may use, which of its values travel,
and what is withheld and why. What a task may import is its [level](levels.md)'s list and the
described libraries of its flavor; a library never touches the kernel layer, builtins or
limits. `stoilo policy show NAME` lists every name; [how to describe one
more](../howto/describe-a-library.md), [why it is done so](../explanation/libraries.md).

| import | describes | from level | modules | names | types that travel | withheld |
|---|---|---|---|---|---|---|
"""

REDUNDANCY_INTRO = """\
# Redundancy

How many copies of a task are made, and how many must agree. The words are BOINC's; pass
what you care about to `stoilo.low_level.redundancy.CreateOptions`, the rest is inferred.

| argument | meaning | when missing |
|---|---|---|
| `min_quorum` | results that must agree | 2 |
| `target_nresults` | copies made at first | `min_quorum` |
| `max_total_results` | copies ever made | max(3, `min_quorum` + 1, `target_nresults`) |
| `max_success_results` | successes without agreement before giving up | `max_total_results` |
| `max_error_results` | failures before giving up | total less a quorum's majority, at least 1 |
| `delay_bound` | a volunteer's time for one copy, s | 300 |

Options that could never end well are refused with `STO-C042` and the relation that does not
hold: 1 ≤ min_quorum ≤ target ≤ max_total ≤ 100, min_quorum ≤ max_success ≤ max_total,
1 ≤ max_error ≤ max_total, delay_bound > 0.

Copies go to distinct users *and* distinct hosts, so `min_quorum=2` needs two users. A limit is
broken when it is exceeded. A copy without an answer in its time is no failure: it uses up the
total and is made again. One that a volunteer aborts or refuses by opt-in is neither failure
nor copy. Without your own comparator two values agree when they are the same,
structurally and exactly; all user errors agree with each other. A result that comes after the
outcome is still compared, for its host's record; the outcome stays as it is.

| outcome | when |
|---|---|
| value, or `UserError` | the first class of `min_quorum` agreeing results |
| `SystemError` STO-R050 | more than `max_error_results` results failed |
| `SystemError` STO-R052 | one more copy is needed and `max_total_results` are used up |
| `SystemError` STO-R052 | successes do not agree |
| `SystemError` STO-R053 … R057, R059 | [a validator](../howto/write-validators.md) |
| `SystemError` STO-R061 | too many copies were refused by opt-in or aborted |

What `CreateOptions` infers:

"""

LIMITS_INTRO = """\
# Limits

Everything from another party is bounded before it is parsed. The numbers are
`stoilo/core/types.py`; the gate's own are on [its page](gate.md#size-and-shape).

"""


def _commands(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=HELP_WIDTH,
        **({} if parent else command.context_settings),
    )
    # click keeps the option that it made for whoever asked first, under other names maybe
    command._help_option = None  # noqa: SLF001 - there is no public way to forget it
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            if inner is not None:
                yield from _commands(inner, inner_name, context)


def help_text() -> dict[str, str]:
    """Return command path → its ``--help`` text, outer commands first."""
    return dict(_commands(cli, "stoilo", None))


def cli_page() -> str:
    """Return the page of all commands."""
    blocks = [
        f"## {path}\n\n```text\n{text.rstrip()}\n```\n"
        for path, text in help_text().items()
    ]
    return "\n".join([CLI_INTRO, *blocks])


def _first_sentence(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")


def _signature(name: str, thing: Callable[..., object]) -> str:
    signature = inspect.signature(thing)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    bare = signature.replace(
        parameters=parameters, return_annotation=inspect.Signature.empty
    )
    marker = "async " if inspect.iscoroutinefunction(thing) else ""
    text = re.sub(r"<([\w.]+)( object)?[^>]*>", r"\1", str(bare))
    return f"`{marker}{name}{text}`"


def _members(owner: type) -> Iterator[str]:
    for name, thing in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(thing, property):
            yield f"- `{name}`: {_first_sentence(thing)}"
        elif inspect.isfunction(thing):
            yield f"- {_signature(name, thing)}: {_first_sentence(thing)}"


def _name_entry(name: str) -> str:
    thing = getattr(stoilo, name)
    if inspect.ismodule(thing):
        return f"## stoilo.{name}\n\n{_first_sentence(thing)}\n"
    if not isinstance(thing, type):
        if not inspect.isfunction(thing):
            return f"## stoilo.{name}\n\nThe value, a `UserError` or a `SystemError`.\n"
        return f"## {_signature(f'stoilo.{name}', thing)}\n\n{_first_sentence(thing)}\n"
    members = [] if name.startswith("Sync") else list(_members(thing))
    listed = "\n".join(members)
    end = f"\n{listed}\n" if members else ""
    return f"## stoilo.{name}\n\n{_first_sentence(thing)}\n{end}"


def api_page() -> str:
    """Return the page of the public Python names."""
    return "\n".join([API_INTRO, *(_name_entry(name) for name in stoilo.__all__)])


def _limit_rows(levels: tuple[Level, ...]) -> Iterator[str]:
    yield "| limit | " + " | ".join(level.name for level in levels) + " |"
    yield "|---|" + "---|" * len(levels)
    for limit in fields(RunLimits):
        pairs = [
            f"{getattr(level.default_limits(), limit.name):,} / "
            f"{getattr(level.max_limits(), limit.name):,}"
            for level in levels
        ]
        yield f"| `{limit.name}` | {' | '.join(pairs)} |"


def _extended(level: Level) -> Iterator[str]:
    """Yield each class of a level with the names that an own class may define."""
    below = {one.name: one for one in load_levels()}.get(level.extends)
    for dotted, names in sorted(level.overrides.items()):
        if below is None or below.overrides.get(dotted) != names:
            given = ", ".join(f"`{name}`" for name in names).replace("`*`", "any")
            yield f"`{dotted}`" + (f" ({given})" if given else " (none)")


def _level_section(level: Level) -> str:
    modules = ", ".join(f"`{name}`" for name in sorted(level.modules))
    types = ", ".join(f"`{name}`" for name in sorted(level.travelling_types)) or "none"
    extended = ", ".join(_extended(level)) or "no more"
    calls = ", ".join(level.syscalls.allow)
    guarded = ", ".join(level.syscalls.guarded)
    denied = "; ".join(
        f"{number}: {', '.join(names)}"
        for number, names in sorted(level.syscalls.errno.items())
    )
    return (
        f"## {level.name} (order {level.order})\n\n{level.summary}\n\n"
        f"**Modules:** {modules}\n\n"
        f"**Library types that may travel:** {types}\n\n"
        f"**Library classes that own classes may extend:** {extended}\n\n"
        f"**System calls let through:** {calls}\n\n"
        f"**Let through with checked arguments:** {guarded}\n\n"
        f"**Fail with an error number instead of killing:** {denied}\n\n"
        "Every other system call kills the run and is named.\n"
    )


def _library_row(one: Library) -> str:
    names = sum(len(rule.names) for rule in one.modules.values())
    return (
        f"| `{one.name}` | {one.distribution} {one.versions} | {one.level} "
        f"| {len(one.modules)} | {names:,} | {len(one.travelling_types)} "
        f"| {len(one.withheld)} |"
    )


def _library_section(one: Library) -> str:
    modules = ", ".join(f"`{name}`" for name in sorted(one.modules))
    types = ", ".join(f"`{name}`" for name in sorted(one.travelling_types)) or "none"
    rows = [f"| `{name}` | {why} |" for name, why in sorted(one.withheld.items())]
    withheld = ["| withheld | why |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(
        [
            f"## {one.name}",
            "",
            one.summary,
            "",
            f"**Modules:** {modules}",
            "",
            f"**Types that travel:** {types}",
            "",
            *withheld,
        ]
    )


def libraries_page() -> str:
    """Return the page of described libraries."""
    libraries = load_libraries()
    rows = "\n".join(map(_library_row, libraries)) + "\n"
    return "\n".join([LIBRARIES_INTRO + rows, *map(_library_section, libraries)])


def levels_page() -> str:
    """Return the page of levels."""
    levels = load_levels()
    table = "\n".join(_limit_rows(levels)) + "\n"
    return "\n".join([LEVELS_INTRO, table, *map(_level_section, levels)])


REDUNDANCY_CASES: tuple[dict[str, int], ...] = (
    {},
    {"min_quorum": 1},
    {"min_quorum": 3},
    {"min_quorum": 3, "max_total_results": 5},
    {"min_quorum": 2, "target_nresults": 4},
    {"min_quorum": 5, "max_total_results": 10},
)


def redundancy_page() -> str:
    """Return the page of redundancy options, with what is inferred."""
    names = [item.name for item in fields(Redundancy)]
    rows = ["| given | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for case in REDUNDANCY_CASES:
        made = CreateOptions(**case)
        given = ", ".join(f"{key}={value}" for key, value in case.items())
        values = " | ".join(str(getattr(made, name)) for name in names)
        rows.append(f"| `CreateOptions({given})` | {values} |")
    return REDUNDANCY_INTRO + "\n".join(rows) + "\n"


def limits_page() -> str:
    """Return the page of bounds; what each is for is the comment beside it."""
    comments = dict(
        re.findall(
            r"^    (\w+): int = [^#\n]+?(?:# (.+))?$",
            inspect.getsource(types.Bounds),
            re.MULTILINE,
        )
    )
    rows = ["| bound | most | |", "|---|---|---|"]
    rows += [
        f"| `{item.name}` | {getattr(BOUNDS, item.name):,} | {comments[item.name]} |"
        for item in msgspec.structs.fields(BOUNDS)
    ]
    runs = ["## One run (default / largest)", "", *_limit_rows(load_levels()), ""]
    units = (
        "`_s` are seconds, `_bytes` bytes. `memory_bytes` is address space above what the\n"
        "warm zygote holds. A limit that is hit is named in the outcome.\n"
    )
    return LIMITS_INTRO + "\n".join([*rows, "", *runs]) + "\n" + units


SETTINGS_INTRO = """\
# Settings of a server

Defaults < `DIR/stoilo.toml` < `STOILO_SERVER_*` < flags of `stoilo up`. Unknown keys are
errors. `stoilo config show --data DIR --origin` says what is in force and why; passwords in
URLs are hidden there. How to set them: [run a server](../howto/run-a-server.md),
[deploy](../howto/deploy.md).

"""

METRICS_INTRO = """\
# Metrics

What `/metrics` shows, in Prometheus' text format. Labels take values from lists of ours
only; there is no name of a person, task, host, file or
address in them. Who may read them: [watch a server](../howto/watch-a-server.md).

"""


TRAFFIC_INTRO = """
## A dispatcher's

What `stoilo learn dispatcher --metrics` shows, by itself. Labels are the names of nodes that
its operator gave (`--node`) and lists of ours; counters begin anew with the process. What:
joined, left, named (nodes), version (begun), opened, collected (rounds), sent, failed. Causes:
stalled, bytes (other ones than the digest's), refused (a part that is there already), gone,
late (its lease has run out), other (a second version of one number).

"""


def settings_page() -> str:
    """Return the page of settings; what each is for is its attribute's text."""
    text = (inspect.getdoc(ServerConfig) or "").partition("Attributes:")[2]
    texts = {
        name: " ".join(words.split())
        for name, words in re.findall(
            r"^    (\w+): (.+?)(?=^    \w+: |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }
    rows = ["| setting | default | |", "|---|---|---|"]
    rows += [
        f"| `{item.name}` | `{item.default!r}` | {texts[item.name]} |"
        for item in fields(ServerConfig)
        if item.name != "data"
    ]
    return SETTINGS_INTRO + "\n".join(rows) + "\n"


def metrics_page() -> str:
    """Return the page of metrics, the server's and a dispatcher's."""
    tables = METRICS_INTRO, METRICS, TRAFFIC_INTRO, TRAFFIC_METRICS
    return "".join(
        one if isinstance(one, str) else _list_metrics(one) for one in tables
    )


def _list_metrics(metrics: Sequence[Metric]) -> str:
    rows = ["| metric | kind | labels | |", "|---|---|---|---|"]
    rows += [
        f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.help} |"
        for one in metrics
    ]
    return "\n".join(rows) + "\n"


def folder_table() -> str:
    """Return the map of ARCHITECTURE.md: each package with its docstring's first line."""
    rows = ["| folder of `stoilo` | what it is |", "|---|---|"]
    for init in sorted(ROOT.glob("stoilo/*/**/__init__.py")):
        docstring = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
        folder = init.parent.relative_to(ROOT / "stoilo").as_posix()
        rows.append(f"| `{folder}/` | {docstring.partition(chr(10))[0]} |")
    return "\n".join(rows)


def render_architecture(text: str) -> str:
    """Return ARCHITECTURE.md with today's map between its two marks."""
    start, end = "<!-- folders -->\n", "\n<!-- end of folders -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end.lstrip())
    return f"{before}{start}{folder_table()}{end}{after}"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "error-codes.md": lambda: render_markdown(list(load_codebook().values())),
    "levels.md": levels_page,
    "libraries.md": libraries_page,
    "limits.md": limits_page,
    "metrics.md": metrics_page,
    "python-api.md": api_page,
    "redundancy.md": redundancy_page,
    "settings.md": settings_page,
}


def render_page(name: str) -> str:
    """Return one page with the note that it is generated."""
    text = PAGES[name]()
    return text if name == "error-codes.md" else f"{NOTE}\n{text}"


def write_pages() -> None:
    """Write every generated page, and each level's filter on x86-64."""
    map_of_folders = ROOT / "ARCHITECTURE.md"
    text = render_architecture(map_of_folders.read_text("utf-8"))
    map_of_folders.write_text(text, encoding="utf-8")
    for name in PAGES:
        (FOLDER / name).write_text(render_page(name), encoding="utf-8")
    (FOLDER / "schemas").mkdir(exist_ok=True)
    for kind in SCHEMAS:
        place = FOLDER / "schemas" / f"{kind}.schema.json"
        place.write_text(render_schema(kind), encoding="utf-8")
    for level in load_levels():
        path = FOLDER / "filters" / f"{level.name}.txt"
        path.write_text(render_filter(level), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
    sys.stdout.write(f"wrote {', '.join(PAGES)} in docs/reference\n")
