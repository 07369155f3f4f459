import pytest

from stoilo.sandbox.facades import logs

SETUP = "import io, logging\nout = io.StringIO()\n"
CONFIG = "logging.basicConfig(stream=out, level='INFO', force=True)\n"


def logged(language, statements, config=CONFIG):
    body = "".join(f"    {line}\n" for line in statements.splitlines())
    source = f"{SETUP}{config}\ndef run(d):\n{body}    return out.getvalue()"
    return language.value(source)


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("logging.info('n=%d', 3)", "INFO:root:n=3\n"),
        ("logging.debug('never')", ""),
        ("logging.getLogger('a.b').warning('x')", "WARNING:a.b:x\n"),
        ("logging.getLogger('a').error('%(k)s', {'k': 1})", "ERROR:a:1\n"),
        ("logging.getLogger().critical('100%')", "CRITICAL:root:100%\n"),
    ],
)
def test_messages_look_as_the_librarys(language, statement, line):
    assert logged(language, statement) == line


def test_level_of_a_child_follows_its_parent(language):
    statements = (
        "logging.getLogger('p').setLevel(logging.ERROR)\n"
        "logging.getLogger('p.q').warning('left out')\n"
        "logging.getLogger('p.q').setLevel('DEBUG')\n"
        "logging.getLogger('p.q').debug('kept')"
    )
    assert logged(language, statements) == "DEBUG:p.q:kept\n"


def test_unconfigured_warning_is_printed(language, monkeypatch):
    monkeypatch.setattr(logs.ROOT, "handlers", [])
    _, output = language.call(
        "import logging\ndef run(d):\n    logging.getLogger('free').warning('seen')"
    )
    assert "seen" in output


def test_logger_kept_apart_is_silent_above(language):
    statements = (
        "logger = logging.getLogger('apart')\nlogger.propagate = False\n"
        "logger.addHandler(logging.NullHandler())\nlogger.error('x')"
    )
    assert logged(language, statements) == ""


@pytest.mark.parametrize(
    "call", ["logging.basicConfig(filename='x')", "logging.Formatter('{a}', style='{')"]
)
def test_files_and_attribute_templates_are_refused(language, call):
    frame, _ = language.call(f"import logging\ndef run(d):\n    {call}")
    assert frame["status"] == "user_error"


OWN = """
import logging

class Shout(logging.Formatter):
    def format(self, record):
        return super().format(record).upper()

class Keep(logging.Handler):
    def __init__(self):
        super().__init__("WARNING")
        self.lines = []
    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage(), self.format(record)))

def run(d):
    logger = logging.getLogger("own")
    logger.propagate = False
    handler = Keep()
    handler.setFormatter(Shout("%(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.info("left out")
    logger.error("n=%d", 3)
    return handler.lines
"""


def test_own_handler_and_formatter_work_as_with_the_library(language):
    assert language.value(OWN) == [("ERROR", "n=3", "OWN: N=3")]


@pytest.mark.parametrize(
    "call",
    [
        "logging.StreamHandler().setFormatter('{0}')",
        "logging.basicConfig(handlers=['{0}'], force=True)",
        "logging.getLogger().addHandler('x') or logging.critical('y')",
    ],
)
def test_what_is_no_handler_or_formatter_is_refused(language, monkeypatch, call):
    monkeypatch.setattr(logs.ROOT, "handlers", [])
    frame, _ = language.call(f"import logging\ndef run(d):\n    {call}")
    assert (frame["error_type"], frame["status"]) == ("TypeError", "user_error")
