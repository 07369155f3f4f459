import pytest

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.levels import level_files, load_levels, load_older_levels, parse_levels
from stoilo.policies.levels import check_level_name, level_names, load_level


def test_shipped_levels_come_narrowest_first() -> None:
    assert level_names()[:2] == ("pure", "numeric")
    assert [level.order for level in load_levels()] == sorted(
        level.order for level in load_levels()
    )


@pytest.mark.parametrize("name", ["", "PURE", "../pure", "no such"])
def test_unknown_level_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="STO-P002"):
        load_level(name)


def test_empty_level_name_means_choose_for_me() -> None:
    check_level_name("")


def test_higher_level_hands_out_all_that_a_lower_one_does() -> None:
    for low, high in zip(load_levels(), load_levels()[1:], strict=False):
        assert set(low.builtins) <= set(high.builtins)
        assert set(low.travelling_types) <= set(high.travelling_types)
        for name, rule in low.modules.items():
            assert set(rule.names) <= set(high.modules[name].names), name


def test_higher_level_has_no_smaller_limits() -> None:
    for low, high in zip(load_levels(), load_levels()[1:], strict=False):
        for field in low.max_limits().__slots__:
            assert getattr(low.max_limits(), field) <= getattr(high.max_limits(), field)


def test_digest_names_the_level() -> None:
    assert len({level.digest for level in load_levels()}) == len(load_levels())


NARROW = b"""
name = "narrow"
order = 0
summary = "for tests"
builtins = ["len"]
[modules.math]
names = ["pi"]
[syscalls]
allow = ["brk"]
errno.EACCES = ["open", "ioctl"]
[limits.default]
cpu_s = 1
wall_s = 1
memory_bytes = 1
result_bytes = 1
output_bytes = 1
threads = 1
[limits.max]
cpu_s = 1
wall_s = 1
memory_bytes = 1
result_bytes = 1
output_bytes = 1
threads = 1
"""
WIDE = (
    NARROW.replace(b'"narrow"\norder = 0', b'"wide"\nextends = "narrow"\norder = 1')
    .replace(b'"pi"', b'"e"')
    .replace(b'"brk"', b'"ioctl"')
    .replace(b'errno.EACCES = ["open", "ioctl"]', b'errno.EACCES = ["stat"]')
)


def test_level_adds_to_the_one_that_it_extends() -> None:
    _, wide = parse_levels([WIDE, NARROW])
    assert wide.modules["math"].names == ("pi", "e")
    assert wide.syscalls.allow == ("brk", "ioctl")
    assert wide.syscalls.errno == {"EACCES": ("open", "stat")}


def test_digest_of_a_level_follows_what_it_extends() -> None:
    _, wide = parse_levels([NARROW, WIDE])
    _, other = parse_levels([NARROW.replace(b'"pi"', b'"tau"'), WIDE])
    assert wide.digest != other.digest


@pytest.mark.parametrize("files", [[WIDE], [NARROW, NARROW], [b"order = 'x'"]])
def test_level_files_that_do_not_fit_together_are_our_fault(files) -> None:
    with pytest.raises(InternalError, match="STO-P001"):
        parse_levels(files)


def test_levels_of_an_earlier_release_are_held_beside_the_present_ones(
    tmp_path,
) -> None:
    for release, summary in (("2026-01", "first"), ("2026-05", "second")):
        (tmp_path / release).mkdir()
        for name, data in level_files().items():
            text = data.decode() if name != "pure" else f"# {summary}\n{data.decode()}"
            (tmp_path / release / f"{name}.toml").write_text(text)
    held = load_older_levels(tmp_path)
    digests = {level.digest for level in held}
    assert len(digests) == len(held) == 2 * len(level_files())
    assert digests.isdisjoint(level.digest for level in load_levels())


def test_present_levels_are_not_older_ones(tmp_path) -> None:
    (tmp_path / "same").mkdir()
    for name, data in level_files().items():
        (tmp_path / "same" / f"{name}.toml").write_bytes(data)
    assert load_older_levels(tmp_path) == ()
    assert load_older_levels(tmp_path / "none") == ()
