import re

from stoilo.core.levels import load_levels
from stoilo.executor.verifier.trust import OLDER_LANGUAGES, installed_release
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST


def test_own_layer_and_levels_are_held() -> None:
    installed = installed_release()
    assert installed.runs(LANGUAGE_DIGEST)
    assert installed.levels == load_levels()
    assert not installed.runs("0" * 64)


def test_older_layers_are_other_digests_each_once() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in OLDER_LANGUAGES)
    assert LANGUAGE_DIGEST not in OLDER_LANGUAGES
    assert len(set(OLDER_LANGUAGES)) == len(OLDER_LANGUAGES)
