"""What a check says of libraries: the shipped ones are sound, planted faults are named."""

from pathlib import Path

import pytest

from stoilo.core.errors import InternalError
from stoilo.core.libraries import library_names, load_library, parse_library
from stoilo.flavors.describing.check import check_library
from stoilo.flavors.describing.drafting import describe_package
from tests.support.libraries import FAKE_LIBRARY, install_fake

READ = Path(__file__).parent / "read"
QUICK = {"PIL", "mpmath", "torchvision"}
CALLED = {"PIL", "networkx", "pandas", "sklearn"}
"""Each of their names is called with nonsense, in 20 to 60 s.

Of torchvision that takes 5 min (its models compute), scipy is not through in 100 s, and
functions of mpmath and sympy run for ever on such numbers: of these, names and source alone
are checked, and their programs call them.
"""
REST = set(library_names()) - QUICK - CALLED
SLOW = [(name, 1) for name in sorted(CALLED)] + [(name, 0) for name in sorted(REST)]


@pytest.mark.parametrize(
    ("name", "deep"),
    [(name, 0) for name in sorted(QUICK)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW],
)
@pytest.mark.timeout(300)
def test_shipped_library_is_sound(name, deep):
    report = check_library(
        load_library(name), (READ / f"{name}.txt").read_text(), deep=deep
    )
    assert [fault.message for fault in report.faults] == []
    assert report.calls > 0 or not deep


HEAD = FAKE_LIBRARY
HARMLESS = "def work(value=1):\n    return value\n"


@pytest.fixture
def installed(tmp_path):
    """Install a package of one file and return its check."""

    def install(source, head=HEAD, read="", version="1.4.2", timeout_s=30, **files):
        install_fake(tmp_path, source, version, **files)
        library = parse_library(head.encode())
        report = check_library(library, read, paths=[tmp_path], timeout_s=timeout_s)
        return [(fault.code, fault.message) for fault in report.faults]

    return install


def test_harmless_library_is_sound(installed):
    assert installed(HARMLESS) == []


def test_another_version_is_named(installed):
    ((code, message),) = installed(HARMLESS, version="1.5.0")
    assert (code, "fake-library 1.5.0" in message) == ("STO-P001", True)


def test_library_that_is_not_installed_is_named(installed):
    head = HEAD.replace("fake-library", "never-installed")
    assert installed(HARMLESS, head)[0] == (
        "STO-P001",
        "never-installed is not installed",
    )


def test_vanished_name_is_named(installed):
    found = installed("def other():\n    return 1\n")
    assert found == [("STO-P001", "fake.work does not exist")]


def test_name_that_is_a_module_is_named(installed):
    found = installed("import sys as work\n")
    assert found == [("STO-P001", "fake.work is a module")]


@pytest.mark.parametrize("table", ["members", "overrides", "writable"])
def test_vanished_class_is_named(installed, table):
    head = HEAD + f'[{table}]\n"fake.Gone" = ["run"]\n'
    assert installed(HARMLESS, head) == [("STO-P001", "fake.Gone is no class")]


def test_vanished_member_of_a_class_is_named(installed):
    head = HEAD + '[members]\n"fake.Kind" = ["gone"]\n'
    found = installed(HARMLESS + "class Kind: pass\n", head)
    assert found == [("STO-P001", "fake.Kind.gone does not exist")]


def test_name_that_is_withheld_and_handed_out_is_named(installed):
    head = HEAD + '[withheld]\n"fake.work" = "files"\n'
    found = installed(HARMLESS, head)
    assert found == [("STO-P001", "fake.work is withheld and handed out")]


def test_import_that_raises_is_named(installed):
    ((code, message),) = installed("raise OSError('no such library')")
    assert (code, message) == (
        "STO-P001",
        "fake cannot be imported: OSError: no such library",
    )


def test_native_crash_at_import_is_named(installed):
    ((code, message),) = installed("import os\nos.abort()")
    assert code == "STO-S020"
    assert message.endswith("(SIGABRT) at import fake")


CRASH = "import ctypes\ndef work():\n    ctypes.string_at(0)\n"


def test_native_crash_at_a_call_is_named_and_the_rest_is_walked(installed):
    found = installed(CRASH)
    assert found[0] == (
        "STO-S020",
        "native code ended the process (SIGSEGV) at fake.work()",
    )
    assert any(
        "nobody has read fake.work (native pointers" in text for _, text in found
    )


ENDLESS = "import itertools\ndef work():\n    sum(itertools.repeat(0))\n"


def test_call_that_never_ends_is_named(installed):
    ((code, message),) = installed(ENDLESS, timeout_s=3)
    assert (code, "no further than fake.work() in 3 s" in message) == ("STO-S011", True)


def test_late_import_is_named(installed):
    found = installed("def work():\n    import fake.later\n", later="")
    assert found == [("STO-S025", "fake.work() imports fake.later when it is used")]


def test_import_of_what_is_not_installed_is_no_fault(installed):
    source = "def work():\n    try:\n        import never_installed\n"
    source += "    except ImportError:\n        return 1\n"
    assert installed(source) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("open('/etc/hosts')", "opens /etc/hosts"),
        ("os.mkdir('made')", "asks for os.mkdir: made"),
        ("os.system('true')", "asks for os.system: "),
    ],
)
def test_file_or_process_at_first_use_is_named(installed, body, said):
    source = f"import os\ndef work():\n    try:\n        {body}\n"
    found = installed(source + "    except OSError:\n        return 1\n")
    assert found[0][0] == "STO-F009"
    assert said in found[0][1]


def test_leak_through_a_method_is_named(installed):
    source = "import json\nclass work:\n    def back(self):\n        return json\n"
    found = installed(source)
    assert found == [("STO-F009", "fake.work().back() leads to more than values")]


READ_ME = "def work(name='real'):\n    return inner(1, name)\n"
READ_ME += "def inner(x, name):\n    return getattr(x, name)\n"


def test_place_that_nobody_read_is_named(installed):
    ((code, message),) = installed(READ_ME)
    assert code == "STO-F009"
    assert message.startswith("nobody has read fake.inner (attribute names")


@pytest.mark.parametrize(
    ("read", "faults"),
    [
        ("# Numbers have no such names.\nfake.*\n", 0),
        ("# UNREAD\nfake.*\n", 1),
        ("fake.*\n", 1),
        ("# Another.\nfake.inside.*\n", 1),
        ("# x\nfake.inner | attribute names as arguments: getattr() | 00000000", 1),
    ],
)
def test_only_a_reason_covers_a_place(installed, read, faults):
    assert len(installed(READ_ME, read=read)) == faults


def test_broken_file_is_refused():
    with pytest.raises(InternalError, match="STO-P001"):
        parse_library(HEAD.replace("versions", "version").encode())


def test_draft_sorts_names_and_says_where_to_read(installed, tmp_path):
    source = READ_ME + HARMLESS.replace("work", "plain") + "import os, json\n"
    source += "def save(x):\n    open(x)\n\nclass Kind:\n    def ok(self): return 1\n"
    source += "    def store(self, path):\n        os.remove(path)\n"
    installed(source + "def first(): import fake.later\n", later="")
    text = describe_package("fake", paths=[tmp_path])
    library = parse_library(text.encode())
    assert library.modules["fake"].names == ("Kind", "first", "plain")
    assert library.withheld == {"fake.save": "files", "fake.Kind.store": "files"}
    assert library.members == {"fake.Kind": ("ok",)}
    assert library.versions == ">=1.4,<1.5"
    assert "fake.later" in library.preload
    assert "# read 1: inner, work" in text
    assert "fake/__init__.py:4" in text
    assert text == describe_package("fake", paths=[tmp_path])
