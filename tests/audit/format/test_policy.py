import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.format.note import (
    KeyType,
    Note,
    NoteSignature,
    cosign_note,
    parse_note,
    parse_vkey,
    private_vkey,
    render_note,
    render_vkey,
    sign_note,
)
from stoilo.audit.format.policy import (
    Group,
    LogPolicy,
    has_quorum,
    open_checkpoint,
    parse_policy,
    render_policy,
)
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey
from tests.support.notekeys import NoteKey

NAMES = ["a1", "a2", "a3", "b1"]
KEYS = {
    name: Ed25519PrivateKey.from_private_bytes(bytes([at + 1]) * 32)
    for at, name in enumerate(["log", *NAMES])
}
BODY = render_checkpoint(Checkpoint("log.test/t", 3, b"\5" * 32))


def vkey(name: str) -> str:
    if name == "log":
        return render_vkey(private_vkey("log.test/t", KeyType.ED25519, KEYS[name]))
    return render_vkey(private_vkey(f"{name}.test", KeyType.COSIGNATURE, KEYS[name]))


POLICY = f"""\
# two of the a's, and b
log\t{vkey("log")}  https://log.test/
witness a1 {vkey("a1")}
witness a2 {vkey("a2")}
witness a3 {vkey("a3")}
group a 2 a1 a2 a3
  witness b1 {vkey("b1")} https://b.test/

group both all a b1
quorum both
""".encode()


def signed(*witnesses: str, time: int = 1000, log: bool = True) -> bytes:
    items: list[NoteSignature] = []
    if log:
        items.append(sign_note(BODY, "log.test/t", KEYS["log"]))
    for at, name in enumerate(witnesses):
        items.append(cosign_note(BODY, f"{name}.test", KEYS[name], time + at))
    return render_note(Note(BODY, tuple(items)))


@pytest.mark.parametrize("names", [("a1", "a2", "b1"), ("b1", "a3", "a1", "a2")])
def test_quorum_opens_the_checkpoint(names: tuple[str, ...]) -> None:
    found = open_checkpoint(signed(*names), parse_policy(POLICY))
    assert found.checkpoint.size == 3
    assert found.witnesses == frozenset(names)
    assert found.time == 1000 + len(names) - 1


def test_witness_below_the_quorum_cannot_move_the_agreed_time() -> None:
    names = ("a1", "a2", "b1", "a3")  # a3, whom nobody needs, says it is much later
    items = parse_note(signed(*names[:3])).signatures
    liar = cosign_note(BODY, "a3.test", KEYS["a3"], 10**9)
    note = render_note(Note(BODY, (*items, liar)))
    found = open_checkpoint(note, parse_policy(POLICY))
    assert (found.time, found.agreed) == (10**9, 1001)


def test_without_witnesses_there_is_no_agreed_time() -> None:
    found = open_checkpoint(signed(), LogPolicy((parse_vkey(vkey("log")),)))
    assert (found.time, found.agreed) == (None, None)


@pytest.mark.parametrize(
    "names", [(), ("a1", "a2"), ("b1",), ("a1", "b1"), ("a1", "a1", "b1")]
)
def test_less_than_a_quorum_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(signed(*names), parse_policy(POLICY))


def test_checkpoint_without_the_log_signature_is_refused() -> None:
    with pytest.raises(TrustError, match="STO-L011"):
        open_checkpoint(signed("a1", "a2", "b1", log=False), parse_policy(POLICY))


def test_log_key_of_another_origin_is_refused() -> None:
    other = LogKey("other.test/t")
    with pytest.raises(TrustError, match="STO-L011"):
        open_checkpoint(other.sign(BODY), other.policy)


def test_unknown_signature_is_passed_over_but_a_bad_known_one_is_not() -> None:
    policy = LogPolicy((parse_vkey(vkey("log")),))
    assert open_checkpoint(signed("a1"), policy).time is None
    note = parse_note(signed())
    good = note.signatures[0]
    bad = NoteSignature(good.name, good.key_id, bytes(64))
    with pytest.raises(TrustError, match="STO-L012"):
        open_checkpoint(render_note(Note(BODY, (good, bad))), policy)


def test_policy_is_written_and_read_back() -> None:
    policy = parse_policy(POLICY)
    assert parse_policy(render_policy(policy)) == policy
    assert [one.url for one in policy.witnesses] == ["", "", "", "https://b.test/"]


def lines(*parts: str) -> bytes:
    return "".join(f"{part}\n" for part in parts).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        lines("quorum a"),
        lines("quorum none", "quorum none"),
        lines("quorum"),
        lines("quorum none x"),
        lines("log", "quorum none"),
        lines(f"log {vkey('a1')}", "quorum none"),
        lines(f"log {vkey('log')}", f"log {vkey('log')}", "quorum none"),
        lines(f"witness w {vkey('log')}", "quorum w"),
        lines(f"witness none {vkey('a1')}", "quorum none"),
        lines(f"witness w {vkey('a1')}", f"witness v {vkey('a1')}", "quorum w"),
        lines(f"witness w {vkey('a1')}", f"witness w {vkey('a2')}", "quorum w"),
        lines("group g any", "quorum g"),
        lines("group g any x", "quorum g"),
        lines(f"witness w {vkey('a1')}", "group g 2 w", "quorum g"),
        lines(f"witness w {vkey('a1')}", "group g 0 w", "quorum g"),
        lines(f"witness w {vkey('a1')}", "group g 1 w w", "quorum g"),
        lines(f"witness w {vkey('a1')}", "group g 1 w", "group h 1 w", "quorum h"),
        lines(f"witness w {vkey('a1')} ftp://w.test", "quorum w"),
        lines(f"witness w {vkey('a1')} http://\u00fc.test", "quorum w"),
        lines(f"witness w {vkey('a1')} http://w.test x", "quorum w"),
        lines("hello", "quorum none"),
        b"quorum none\r\n",
        b"# \x00\nquorum none\n",
        b"#" * 270_000 + b"\nquorum none\n",
    ],
)
def test_malformed_policy_is_refused(text: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L003"):
        parse_policy(text)


def test_thirty_two_of_everything_are_read_with_the_largest_keys() -> None:
    """The specification recommends at least so many; ML-DSA keys are the longest."""

    def key(name: str, number: int) -> str:
        seed = bytes([number]) * 32
        return render_vkey(NoteKey.from_seed(name, KeyType.ML_DSA_44, seed).vkey)

    text = [f"log {key('log.test/t', number)} https://l.test" for number in range(32)]
    for at in range(32):
        text.append(f"witness w{at} {key(f'w{at}.test', 100 + at)} https://w{at}.test")
        text.append(f"group g{at} any w{at}")
    members = " ".join(f"g{at}" for at in range(32))
    policy = parse_policy(lines(*text, f"group all all {members}", "quorum all"))
    assert (len(policy.logs), len(policy.witnesses), len(policy.groups)) == (32, 32, 33)
    assert parse_policy(render_policy(policy)) == policy


def test_key_name_that_is_no_text_is_refused() -> None:
    """Policies are octets; names in keys must be UTF-8 all the same."""
    text = lines(f"log {vkey('log')}", "quorum none").replace(b"log.test", b"log\xff")
    with pytest.raises(TrustError, match="STO-K001"):
        parse_policy(text)


def test_cosignature_without_a_time_is_no_witness() -> None:
    with pytest.raises(TrustError, match="STO-L013"):
        open_checkpoint(signed("a1", "a2", "b1", time=0), parse_policy(POLICY))


@given(
    st.binary(max_size=120) | st.lists(st.sampled_from(POLICY.split())).map(b" ".join)
)
def test_any_policy_parses_or_raises_trust_error(text: bytes) -> None:
    try:
        parse_policy(text)
    except TrustError:
        pass


@given(st.sets(st.sampled_from(NAMES)))
def test_quorum_is_exactly_its_rule(names: set[str]) -> None:
    enough = "b1" in names and len(names & {"a1", "a2", "a3"}) >= 2
    try:
        open_checkpoint(signed(*sorted(names)), parse_policy(POLICY))
    except TrustError:
        assert not enough
    else:
        assert enough


@pytest.mark.parametrize(
    ("cosigners", "enough"),
    [("", False), ("a b", False), ("c d", False), ("b d", False), ("a b c", True)],
)
def test_quorum_counts_groups_of_groups(cosigners: str, enough: bool) -> None:
    groups = (
        Group("left", 2, ("a", "b")),
        Group("right", 1, ("c", "d")),
        Group("top", 2, ("left", "right")),
    )
    policy = LogPolicy((), (), groups, "top")
    assert has_quorum(policy, cosigners.split()) is enough
    assert has_quorum(LogPolicy(()), cosigners.split())  # none asks for nobody
