"""The launcher's parsers by themselves: beside Python's, and under mutated bytes.

`make fuzz` runs the same program for longer, and with clang's guidance where clang is.
"""

import ctypes
import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError
from stoilo.core.frozen_tree import parse_tree, platform_name, ustar_header
from stoilo.flavors.launcher_build import launcher_sources

PROGRAMS = Path(__file__).parent / "programs"
FUZZED = ["archive.c", "header.c", "manifest.c", "sha256.c", "failure.c"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
A_DIGEST = hashlib.sha256(b"a").hexdigest()


def load(workshop, compile_program, name, *options):
    sources = [launcher_sources() / source for source in FUZZED]
    words = ["-shared", "-fPIC", *options, *sources]
    return ctypes.CDLL(compile_program(workshop / name, *words))


@pytest.fixture(scope="module")
def library(workshop, compile_program):
    found = load(workshop, compile_program, "parsers.so")
    found.manifest_parse.restype = ctypes.c_char_p
    found.soft_link_parse.restype = ctypes.c_char_p
    return found


@pytest.fixture(scope="module")
def plain(workshop, compile_program):
    """The same, without the processor's instructions for SHA-256."""
    return load(workshop, compile_program, "plain.so", "-DSHA256_PLAIN")


def accepts(library, manifest):
    """Whether the launcher's parser takes a manifest."""
    text = ctypes.create_string_buffer(manifest, len(manifest) or 1)
    room = ctypes.create_string_buffer(8 + 4096 * 32)
    platform = platform_name().encode()
    return library.manifest_parse(text, len(manifest), platform, room) is None


def accepted_by_python(manifest):
    try:
        tree = parse_tree(manifest)
    except TrustError:
        return False
    return (
        tree.part == "verifier"
        and tree.platform == platform_name()
        and tree.size <= 256 << 20
        and len(tree.files) <= 4096
    )


# Names that come close to each other, so that clashes, order and limits are met.
NAMES = st.sampled_from(
    [
        "a",
        "A",
        "b",
        "a+",
        "a.b",
        "..",
        ".",
        "",
        "-a",
        "MANIFEST",
        "Manifest",
        "é",
        "x y",
    ]
) | st.one_of(
    st.text("aAbB._-~", min_size=1, max_size=3),
    st.integers(99, 130).map(lambda size: "m" * size),
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
SIZES = st.sampled_from(["0", "1", "00", "268435456", "268435457", "", "-1", "9" * 30])
LINES = st.builds(
    lambda digest, size, mark, path: f"{digest} {size} {mark} {path}",
    st.sampled_from([A_DIGEST] * 6 + [A_DIGEST[1:], A_DIGEST.upper()]),
    st.just("7") | SIZES,
    st.sampled_from(["-", "x", "-", "x", "w", ""]),
    PATHS,
)
HEADS = st.sampled_from([f"stoilo-tree/1 verifier {platform_name()}"] * 8 + ["", "x"])
MANIFESTS = st.builds(
    lambda head, lines, end: ("\n".join([head, *sorted(set(lines))]) + end).encode(),
    HEADS,
    st.lists(LINES, max_size=4),
    st.sampled_from(["\n"] * 6 + ["", "\r\n", "\n\n", "\0\n"]),
)


@given(manifest=MANIFESTS)
def test_both_parsers_take_the_same_manifests(library, manifest):
    assert accepts(library, manifest) == accepted_by_python(manifest)


@given(
    paths=st.lists(st.text("aAbB/.+", min_size=1, max_size=6), min_size=1, max_size=6)
)
def test_both_parsers_take_the_same_paths(library, paths):
    lines = [f"{A_DIGEST} 1 - {path}\n" for path in sorted(set(paths))]
    manifest = f"stoilo-tree/1 verifier {platform_name()}\n{''.join(lines)}".encode()
    assert accepts(library, manifest) == accepted_by_python(manifest)


def test_they_take_some_and_refuse_some(library):
    """The control of the two above."""
    good = f"stoilo-tree/1 verifier {platform_name()}\n{A_DIGEST} 1 - a/b\n".encode()
    assert accepts(library, good)
    assert not accepts(library, good.replace(b"a/b", b"../b"))


@given(
    path=st.lists(
        st.sampled_from(["a" * 30, "b" * 99, "c" * 100]), min_size=1, max_size=3
    ),
    size=st.integers(0, (1 << 33) - 1),
    executable=st.booleans(),
)
def test_both_write_the_same_header(library, path, size, executable):
    block = ctypes.create_string_buffer(512)
    name = "/".join(path)
    fits = library.archive_header(
        name.encode(), ctypes.c_uint64(size), executable, block
    )
    try:
        expected = ustar_header(name, size, executable=executable)
    except TrustError:
        assert not fits & 0xFF or len(name) > 240
    else:
        assert block.raw == expected


@given(data=st.binary(max_size=300), again=st.integers(1, 40))
def test_sha256_is_sha256_both_ways(library, plain, data, again):
    data = data * again
    hex_digest = hashlib.sha256(data).hexdigest().encode()
    for one in (library, plain):
        assert one.has_digest(data, len(data), hex_digest) & 0xFF == 1


def test_sha256_in_pieces_at_every_boundary(library, plain):
    data = bytes(range(256)) * 2
    for one in (library, plain):
        for cut in (0, 1, 55, 56, 63, 64, 65, 127, 128, 200):
            state = ctypes.create_string_buffer(200)
            found = ctypes.create_string_buffer(65)
            one.sha256_begin(state)
            one.sha256_add(state, data[:cut], cut)
            one.sha256_add(state, data[cut:300], 300 - cut)
            one.sha256_end(state, found)
            assert found.value.decode() == hashlib.sha256(data[:300]).hexdigest()


@given(
    data=st.binary(max_size=60)
    | st.binary(max_size=20).map(lambda x: b"<soft_link>" + x)
)
def test_soft_link_gives_its_path_or_nothing(library, data):
    text = ctypes.create_string_buffer(data, len(data) or 1)
    path = library.soft_link_parse(text, len(data))
    if path is not None:
        plain_text = data.removesuffix(b"\n")
        assert plain_text == b"<soft_link>" + path + b"</soft_link>"


@pytest.fixture
def run_fuzz(fixed_addresses, honest_archive):
    """Return a runner of a fuzz program, from one seed."""

    def run(program, rounds):
        command = [*fixed_addresses, program, "1", str(rounds), honest_archive]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env={}
        )

    return run


@pytest.fixture(scope="module")
def fuzz(workshop, compile_program):
    """Return a builder of the fuzz program, of sources in which words are replaced."""

    def build(name, *replaced):
        folder = workshop / name
        folder.mkdir()
        headers = [path.name for path in launcher_sources().glob("*.h")]
        for source in [*FUZZED, *headers]:
            text = (launcher_sources() / source).read_text()
            for old, new in replaced:
                text = text.replace(old, new)
            (folder / source).write_text(text)
        sources = [folder / source for source in FUZZED]
        options = [*SANITIZERS, f"-I{folder}", f'-DPLATFORM="{platform_name()}"']
        return compile_program(
            folder / "fuzz", *options, PROGRAMS / "fuzz_parsers.c", *sources
        )

    return build


@pytest.fixture(scope="module")
def honest_archive(workshop, pack_tree):
    tree = workshop / "small"
    (tree / "a" / ("b" * 99)).mkdir(parents=True)
    (tree / "a" / ("b" * 99) / "c").write_bytes(b"x" * 700)
    (tree / "a" / "d").write_bytes(b"")
    for name in ("K1", "k3", "z"):  # one letter from a clash
        (tree / name).write_bytes(b"program")
    (tree / "z").chmod(0o755)
    (workshop / "small.tar").write_bytes(pack_tree(tree).archive)
    return workshop / "small.tar"


def test_mutated_bytes_break_no_promise(fuzz, run_fuzz):
    done = run_fuzz(fuzz("honest"), 4000)
    assert done.returncode == 0, done.stderr[-3000:]
    accepted, _, refused, _ = done.stdout.split()
    assert int(accepted) > 200
    assert int(refused) > 2000


ORDER = "entry[-1].path, entry->path) "
PLANTED = {
    "no check of order": (f"{ORDER}>= 0", f"{ORDER}> 9"),
    "no check of clashes": ("check_clashes(out);", "NULL;"),
    "one byte beyond": ("memchr(text, '\\0', size)", "memchr(text, '\\0', size + 1)"),
    "any header": (
        "memcmp(found, right, BLOCK) != 0",
        "memcmp(found, right, 100) != 0",
    ),
    "any bytes": ("memcmp(hex, entry->digest, HEX) != 0", "false"),
    "any padding": ("return is_zero(rest, length) ?", "return true ?"),
}


@pytest.mark.slow
@pytest.mark.parametrize("old_and_new", PLANTED.values(), ids=PLANTED)
def test_control_planted_fault_is_found(fuzz, run_fuzz, request, old_and_new):
    name = request.node.callspec.id.replace(" ", "-")
    sources = [(launcher_sources() / one).read_text() for one in FUZZED]
    assert any(old_and_new[0] in text for text in sources)
    done = run_fuzz(fuzz(name, old_and_new), 100_000)
    assert done.returncode != 0
    assert "broken promise" in done.stderr or "Sanitizer" in done.stderr
