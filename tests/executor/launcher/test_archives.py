"""Archives that are not the one: refused by code, nothing started, nothing left.

Those of the first half have another digest than the launcher holds. Those of the second
half have the very digest that it holds, as if the ceremony had signed them by mistake; they
also run in a launcher that is built with sanitizers.
"""

import hashlib
import os
import tarfile

import pytest

from stoilo.core.frozen_tree import platform_name, ustar_header

SWAPPED = {
    "truncated": lambda archive: archive[:-1],
    "a block short": lambda archive: archive[:-512],
    "longer": lambda archive: archive + bytes(512),
    "one bit": lambda archive: (
        archive[:5000] + bytes([archive[5000] ^ 1]) + archive[5001:]
    ),
    "another of the same size": lambda archive: bytes(len(archive)),
}


@pytest.mark.parametrize("change", SWAPPED.values(), ids=SWAPPED)
def test_another_archive_is_refused_unread(make_slot, verifier, change):
    slot = make_slot(archive=change(verifier.archive))
    assert slot.refusal() == (4, "STO-F052")
    assert slot.leftovers() == []
    assert not slot.tree.exists()


def test_right_archive_starts(slot):
    assert slot.starts()  # the control of everything here


def test_archive_itself_may_lie_in_the_slot(slot):
    (slot.project / "stoilo-verifier.tar").replace(slot.path / "stoilo-verifier.tar")
    assert slot.starts()


def test_missing_archive_is_told(slot):
    (slot.path / "stoilo-verifier.tar").unlink()
    assert slot.refusal() == (1, "STO-F052")


def test_archive_is_not_needed_once_it_is_unpacked(slot):
    assert slot.starts()
    (slot.path / "stoilo-verifier.tar").unlink()
    assert slot.starts()


@pytest.mark.parametrize("where", ["path", "project"])
def test_symbolic_link_is_not_followed(slot, where, tmp_path):
    file = getattr(slot, where) / "stoilo-verifier.tar"
    (tmp_path / "real").write_bytes(slot.verifier.archive)
    file.unlink()
    file.symlink_to(tmp_path / "real")
    assert slot.refusal() == (4, "STO-F052")


@pytest.mark.parametrize("where", ["path", "project"])
def test_pipe_is_not_waited_for(slot, where):
    file = getattr(slot, where) / "stoilo-verifier.tar"
    file.unlink()
    os.mkfifo(file)
    assert slot.refusal() == (4, "STO-F052")


def test_directory_is_no_archive(slot):
    (slot.path / "stoilo-verifier.tar").unlink()
    (slot.path / "stoilo-verifier.tar").mkdir()
    assert slot.refusal() == (4, "STO-F052")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<soft_link></soft_link>\n",
        b"<soft_link>../x",
        b"../../projects/p/stoilo-verifier.tar",
        b" <soft_link>../x</soft_link>",
        b"<soft_link>../x</soft_link>\n\n",
        b"<soft_link>../x</soft_link><soft_link>../y</soft_link>",
        b"<soft_link>../x\0</soft_link>",
        b"<soft_link>\x1b[2J</soft_link>",
        b"\0" * 2048,
    ],
)
def test_malformed_soft_link_is_refused(slot, text):
    (slot.path / "stoilo-verifier.tar").write_bytes(text)
    assert slot.refusal() == (4, "STO-F052")


def test_soft_link_to_a_soft_link_is_not_followed(slot):
    text = (slot.path / "stoilo-verifier.tar").read_bytes()
    (slot.path / "other").write_bytes(text)
    (slot.path / "stoilo-verifier.tar").write_bytes(b"<soft_link>other</soft_link>")
    assert slot.refusal() == (4, "STO-F052")


def test_path_in_a_soft_link_commands_no_terminal(slot):
    (slot.path / "stoilo-verifier.tar").write_bytes(
        b"<soft_link>\xc2\x9b2J</soft_link>"
    )
    done = slot.run()
    assert b"at ??2J (ENOENT)" in done.stderr


# The second half.


def member(path, data, header=None):
    head = ustar_header(path, len(data), executable=False) if header is None else header
    return head + data + bytes(-len(data) % 512)


FIRST = f"stoilo-tree/1 verifier {platform_name()}"


def listing(*lines, first=FIRST):
    return "".join(f"{line}\n" for line in (first, *lines)).encode()


A = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # sha256(b"a")
ONE = listing(f"{A} 1 - one")
END = bytes(1024)
BODY = member("one", b"a")


def tar_of(kind, **fields):
    """Return a member of another type, as tar writes it."""
    info = tarfile.TarInfo("one")
    info.type = kind
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(tarfile.USTAR_FORMAT)


def changed(header, at, data):
    """Return `header` with other bytes and the checksum that belongs to them."""
    out = bytearray(header)
    out[at : at + len(data)] = data
    out[148:156] = b" " * 8
    out[148:156] = b"%06o\0 " % sum(out)
    return bytes(out)


HEAD = ustar_header("one", 1, executable=False)
MEMBERS = {
    "nothing": b"",
    "no end": BODY,
    "half an end": BODY + bytes(512),
    "bytes after the end": BODY + END + bytes(512),
    "an end that is not zero": BODY + bytes(1023) + b"x",
    "symbolic link": tar_of(tarfile.SYMTYPE, linkname="/etc/passwd") + END,
    "hard link": tar_of(tarfile.LNKTYPE, linkname="MANIFEST") + END,
    "directory": tar_of(tarfile.DIRTYPE) + END,
    "device": tar_of(tarfile.CHRTYPE, devmajor=1, devminor=3) + END,
    "pipe": tar_of(tarfile.FIFOTYPE) + END,
    "pax header": tar_of(tarfile.XHDTYPE) + BODY + END,
    "long name header": tar_of(tarfile.GNUTYPE_LONGNAME) + BODY + END,
    "setuid": member("one", b"a", changed(HEAD, 100, b"0004755")) + END,
    "executable": member("one", b"a", changed(HEAD, 100, b"0000755")) + END,
    "owner": member("one", b"a", changed(HEAD, 108, b"0000001")) + END,
    "time": member("one", b"a", changed(HEAD, 136, b"00000000000")) + END,
    "user name": member("one", b"a", changed(HEAD, 265, b"root")) + END,
    "prefix": member("one", b"a", changed(HEAD, 345, b"..")) + END,
    "checksum": member("one", b"a", HEAD[:148] + b"0000000\0" + HEAD[156:]) + END,
    "gnu magic": member("one", b"a", changed(HEAD, 257, b"ustar  ")) + END,
    "size says more": member("one", b"a", changed(HEAD, 124, b"00000000777")) + END,
    "size as binary": member("one", b"a", changed(HEAD, 124, b"\x80")) + END,
    "another path": member("two", b"a") + END,
    "escaping path": member("../one", b"a") + END,
    "absolute path": member("/one", b"a") + END,
    "one too many": BODY + member("two", b"a") + END,
    "twice": BODY + BODY + END,
    "padding": ustar_header("one", 1, executable=False) + b"a" + b"x" * 511 + END,
    "another content": member("one", b"b") + END,
}


@pytest.fixture(params=["built", "sanitized"])
def refused_code(request, make_slot, make_verifier):
    """Return what says how a launcher refuses an archive whose digest it holds."""

    def refuse(archive, manifest):
        digest = hashlib.sha256(manifest).hexdigest()
        program = request.getfixturevalue(request.param)
        slot = make_slot(make_verifier(archive, digest), program=program)
        found = slot.refusal()
        assert slot.leftovers() == []
        assert not slot.tree.exists()
        return found

    return refuse


@pytest.mark.parametrize("program", ["built", "sanitized"])
def test_unchanged_archive_of_that_kind_is_unpacked(
    request, make_slot, make_verifier, program
):
    """The control of what follows; it holds no program to start."""
    digest = hashlib.sha256(ONE).hexdigest()
    verifier = make_verifier(member("MANIFEST", ONE) + BODY + END, digest)
    slot = make_slot(verifier, program=request.getfixturevalue(program))
    assert slot.refusal() == (1, "STO-F059")
    assert (slot.tree / "one").read_bytes() == b"a"


@pytest.mark.parametrize("rest", MEMBERS.values(), ids=MEMBERS)
def test_member_that_the_manifest_does_not_say_is_refused(refused_code, rest):
    archive = member("MANIFEST", ONE) + rest
    assert refused_code(archive, ONE) == (4, "STO-F052")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        BODY + END,
        member("manifest", ONE),
        member(
            "MANIFEST",
            ONE,
            changed(ustar_header("MANIFEST", len(ONE), executable=False), 156, b"2"),
        ),
        ustar_header("MANIFEST", 0, executable=False),
        ustar_header("MANIFEST", (1 << 20) + 1, executable=False) + bytes(1 << 21),
        ustar_header("MANIFEST", 1 << 20, executable=False) + ONE,
        member("MANIFEST", ONE + b"\n"),
    ],
)
def test_first_member_that_is_not_the_manifest_is_refused(refused_code, first):
    assert refused_code(first + BODY + END, ONE) == (4, "STO-F052")


LONG = "/".join(["d" * 100, "f" * 101])
LISTS = {
    "no file": listing(),
    "empty": b"\n",
    "another part": listing(
        f"{A} 1 - one", first=f"stoilo-tree/1 pure {platform_name()}"
    ),
    "another platform": listing(
        f"{A} 1 - one", first="stoilo-tree/1 verifier mips-linux"
    ),
    "another format": listing(
        f"{A} 1 - one", first=f"stoilo-tree/2 verifier {platform_name()}"
    ),
    "no last end of line": ONE[:-1],
    "carriage return": ONE.replace(b"\n", b"\r\n"),
    "NUL": ONE.replace(b"one", b"o\0e"),
    "upper-case digest": listing(f"{A.upper()} 1 - one"),
    "short digest": listing(f"{A[:-1]} 1 - one"),
    "long digest": listing(f"{A}0 1 - one"),
    "leading zero": listing(f"{A} 01 - one"),
    "negative": listing(f"{A} -1 - one"),
    "plus": listing(f"{A} +1 - one"),
    "no size": listing(f"{A}  - one"),
    "size beyond the bound": listing(f"{A} 268435457 - one"),
    "size beyond 64 bits": listing(f"{A} 99999999999999999999999 - one"),
    "sum beyond the bound": listing(f"{A} 268435456 - one", f"{A} 1 - two"),
    "another mark": listing(f"{A} 1 w one"),
    "no path": listing(f"{A} 1 - "),
    "absolute": listing(f"{A} 1 - /one"),
    "escaping": listing(f"{A} 1 - ../one"),
    "escaping within": listing(f"{A} 1 - one/../../two"),
    "dot": listing(f"{A} 1 - ./one"),
    "double slash": listing(f"{A} 1 - one//two"),
    "slash at the end": listing(f"{A} 1 - one/"),
    "option": listing(f"{A} 1 - -one"),
    "space": listing(f"{A} 1 - o ne"),
    "letters beyond ASCII": listing(f"{A} 1 - öne"),
    "backslash": listing(f"{A} 1 - o\\ne"),
    "long name": listing(f"{A} 1 - {'x' * 129}"),
    "long path": listing(f"{A} 1 - {'/'.join(['x' * 60] * 4)}"),
    "path that does not fit a header": listing(f"{A} 1 - {LONG}"),
    "the manifest itself": listing(f"{A} 1 - MANIFEST"),
    "the manifest in other letters": listing(f"{A} 1 - Manifest"),
    "out of order": listing(f"{A} 1 - two", f"{A} 1 - one"),
    "twice": listing(f"{A} 1 - one", f"{A} 1 - one"),
    "case collision": listing(f"{A} 1 - One", f"{A} 1 - one"),
    "case collision far apart": listing(f"{A} 1 - A", f"{A} 1 - B", f"{A} 1 - a"),
    "file and directory": listing(f"{A} 1 - one", f"{A} 1 - one+", f"{A} 1 - one/two"),
    "file and directory in other letters": listing(f"{A} 1 - ONE", f"{A} 1 - one/two"),
    "too many": listing(*(f"{A} 1 - {number:05d}" for number in range(4097))),
}


@pytest.mark.parametrize("manifest", LISTS.values(), ids=LISTS)
def test_manifest_that_breaks_a_rule_is_refused(refused_code, manifest):
    archive = member("MANIFEST", manifest) + BODY + END
    assert refused_code(archive, manifest) == (4, "STO-F052")
