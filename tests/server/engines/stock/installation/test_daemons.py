from __future__ import annotations

from stoilo.server.engines.stock.installation.config_rules import (
    correct_daemons,
    wanted_daemons,
)
from stoilo.server.engines.stock.project.config import ConfigText, Daemon, read_config
from tests.support.stockproject import CONFIG

APPS = ("pure", "numeric")
MADE = read_config(CONFIG.encode())


def corrected(config=MADE):
    changes = list(correct_daemons(config, APPS))
    instead = {was: becomes for was, becomes, _ in changes}
    added = [becomes for was, becomes, _ in changes if was is None]
    kept = [instead.get(daemon, daemon) for daemon in config.daemons]
    return ConfigText(config.settings, (*kept, *added))


def test_feeder_gives_every_app_its_slots():
    feeder = next(one for one in corrected().daemons if one.program == "feeder")
    assert feeder.cmd == "feeder -d 3 --allapps --sleep_interval 1"


def test_each_app_gets_a_validator_and_an_assimilator():
    ours = wanted_daemons(APPS)
    assert [one.value_of("app") for one in ours] == [
        "pure",
        "pure",
        "numeric",
        "numeric",
    ]


def test_daemons_of_one_program_share_no_file():
    ours = wanted_daemons(APPS)
    for name in ("output", "pid_file", "lock_file"):
        assert len({getattr(one, name) for one in ours}) == len(ours)


def test_entry_points_are_single_words():
    for one in wanted_daemons(APPS):
        for option in ("init_script", "compare_script", "script"):
            assert '"' not in one.value_of(option)


def test_corrected_daemons_need_no_correction():
    assert list(correct_daemons(corrected(), APPS)) == []


def test_slower_pace_that_somebody_chose_stays():
    slow = Daemon("transitioner --sleep_interval 30")
    config = ConfigText({}, (slow, *corrected().daemons))
    assert slow not in [was for was, _, _ in correct_daemons(config, APPS)]


def test_disabled_daemon_is_enabled():
    config = ConfigText({}, (Daemon("file_deleter -d 3", disabled=True),))
    changes = {becomes for _, becomes, _ in correct_daemons(config, APPS)}
    assert Daemon("file_deleter -d 3") in changes


def test_validator_of_another_make_is_left_alone():
    other = Daemon("script_validator --app pure --init_script theirs")
    config = ConfigText({}, (*MADE.daemons, other))
    assert other in corrected(config).daemons
