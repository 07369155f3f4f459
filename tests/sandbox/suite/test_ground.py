import pytest

from stoilo.sandbox.suite.programs import Ground


def test_token_in_any_text_is_seen():
    with Ground.make() as ground:
        assert ground.was_reached("x", f"<{ground.token}>")
        assert not ground.was_reached("x", ground.token[:-1])


@pytest.mark.parametrize("make", ["touch", "mkdir", "symlink"])
def test_mark_of_any_kind_is_seen_once(make):
    with Ground.make() as ground:
        if make == "symlink":
            ground.mark.symlink_to("nowhere")
        else:
            getattr(ground.mark, make)()
        assert ground.was_reached()
        assert not ground.was_reached()


def test_folder_is_open_to_other_users_and_gone_afterwards():
    with Ground.make() as ground:
        assert ground.folder.stat().st_mode & 0o777 == 0o777
        assert ground.canary.stat().st_mode & 0o444 == 0o444
    assert not ground.folder.exists()
