"""Each fault has its finding, and a healthy project has none."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from stoilo.server.engines.stock.installation.checks import (
    examine,
    is_healthy,
)
from stoilo.server.engines.stock.installation.facts import short_host
from stoilo.server.engines.stock.installation.install import install_project
from stoilo.server.engines.stock.installation.private_keys import KeySearch
from stoilo.server.engines.stock.installation.queues import Backlog, Queues
from stoilo.server.engines.stock.installation.snapshot import (
    DaemonState,
    Space,
    WebAnswer,
    read_snapshot,
)
from stoilo.server.engines.stock.project.config import Daemon, edit_config
from stoilo.signer.boinc_keys import render_boinc_private
from tests.support.stockproject import StockTree

UP = {
    "master page": WebAnswer(
        "http://p/", 200, '<link rel="boinc_scheduler" href="http://p/cgi">'
    ),
    "scheduler": WebAnswer("http://p/cgi", 200, "<scheduler_reply>"),
    "upload handler": WebAnswer("http://p/up", 200, "<data_server_reply>"),
    "download": WebAnswer("http://p/download/x", 200, "\x7fELF"),
    "php": WebAnswer("http://p/get_project_config.php", 200, "<project_config>"),
}
DOWN = WebAnswer("http://p/cgi", 200, "<project_is_down/>")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    made = StockTree(tmp_path_factory.mktemp("stock"))
    install_project(made.root, made.offer, url=made.url)
    return made


@pytest.fixture(scope="module")
def healthy(tree):
    """A snapshot in which nothing is wrong."""
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    alive = tuple(replace(one, pid=7, alive=True) for one in seen.daemons)
    return replace(
        seen,
        daemons=alive,
        can_make=True,
        socket="",
        cron_age_s=10,
        web=UP,
        spaces=(Space("project", 10**12, 10**11),),
    )


def failed(seen):
    return {one.name: one for one in examine(seen) if one.grave}


def warned(seen):
    return {one.name: one for one in examine(seen) if not one.grave}


def with_facts(seen, **fields):
    return replace(seen, facts=replace(seen.facts, **fields))


def with_database(seen, **fields):
    return with_facts(seen, database=replace(seen.facts.database, **fields))


def with_queues(seen, **fields):
    return replace(seen, queues=replace(seen.queues, **fields))


def with_web(seen, **answers):
    return replace(
        seen,
        web=seen.web | {name.replace("_", " "): one for name, one in answers.items()},
    )


def with_file(seen, name, data):
    return with_facts(seen, files=seen.facts.files | {name: data})


def test_project_as_installed_is_healthy(healthy):
    assert examine(healthy) == ()
    assert is_healthy(examine(healthy))


def test_killed_daemon_is_named_with_the_end_of_its_log(healthy):
    first, *others = healthy.daemons
    dead = replace(first, alive=False, last_words="Duplicate entry 'w_1'")
    finding = failed(replace(healthy, daemons=(dead, *others)))["daemon feeder"]
    assert "is gone" in finding.text
    assert "Duplicate entry" in finding.text


def test_database_that_is_down_is_the_only_cause_named_for_what_it_hides(healthy):
    dead = tuple(replace(one, alive=False) for one in healthy.daemons)
    down = with_web(with_facts(healthy, database=None), scheduler=DOWN)
    down = replace(down, daemons=dead, queues=Queues(trouble="Can't connect"))
    assert set(failed(down)) == {"database"}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Space("upload", 10**12, 10**6), "MB free"),
        (Space("upload", 10**12, 10**11, 3), "3 more files"),
    ],
)
def test_full_disk_is_named(healthy, space, said):
    text = failed(replace(healthy, spaces=(space,)))["disk upload"].text
    assert text.startswith("the disk is full")
    assert said in text


def test_stopped_project_is_named_and_its_daemons_are_not_blamed(healthy):
    dead = tuple(replace(one, alive=False) for one in healthy.daemons)
    stopped = replace(healthy, stop_files=("stop_sched",), daemons=dead)
    stopped = with_web(stopped, scheduler=DOWN)
    assert set(failed(stopped)) == {"stopped", "scheduler"}
    assert "stopped" in failed(stopped)["scheduler"].text


def test_scheduler_without_feeder_says_so(healthy):
    assert "feeder" in failed(with_web(healthy, scheduler=DOWN))["scheduler"].text


@pytest.mark.parametrize(
    "name",
    [
        *("transitions", "validations", "assimilations", "deletions"),
        *("creation", "outcomes"),
    ],
)
def test_slow_stage_is_named(healthy, name):
    assert set(failed(with_queues(healthy, backlogs={name: Backlog(3, 500)}))) == {
        f"backlog {name}"
    }
    assert failed(with_queues(healthy, backlogs={name: Backlog(3, 5)})) == {}


def test_end_that_the_server_could_not_take_is_named_at_once(healthy):
    seen = with_queues(healthy, backlogs={"outcomes": Backlog(3, 5)}, refused=1)
    assert set(failed(seen)) == {"backlog outcomes"}


def test_workunit_that_somebody_else_made_is_named(healthy):
    seen = with_queues(healthy, foreign=1, foreign_name="w_1")
    assert "w_1" in failed(seen)["names"].text


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("master page", WebAnswer("u", trouble="refused")),
        ("master page", WebAnswer("u", 200, "Apache works")),
        ("scheduler", WebAnswer("u", 500)),
        ("upload handler", WebAnswer("u", 404)),
        ("download", WebAnswer("u", 403)),
        ("php", WebAnswer("u", 200, "<b>Deprecated</b>")),
    ],
)
def test_url_that_does_not_serve_clients_is_named(healthy, name, answer):
    assert set(failed(replace(healthy, web=healthy.web | {name: answer}))) == {name}


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (KeySearch(("keys/code_sign_private",)), "private-key"),
        (KeySearch(closed=("keys",)), "closed-keys"),
    ],
)
def test_private_key_fails_and_so_does_a_place_that_nobody_could_look_into(
    healthy, keys, name
):
    found = failed(with_facts(healthy, keys=keys))
    assert set(found) == {name}
    assert "keys" in found[name].text


def test_other_place_that_nobody_could_look_into_warns(healthy):
    seen = with_facts(healthy, keys=KeySearch(unseen=("html/x",)))
    assert "unseen-files" in warned(seen)
    assert is_healthy(examine(seen))


def test_plan_classes_that_are_not_utf8_are_read(tmp_path):
    tree = StockTree(tmp_path)
    (tree.root / "plan_class_spec.xml").write_bytes(b"<!-- J\xfcrgen -->")
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    assert "installation" in failed(seen)


def test_setting_of_make_project_fails(healthy, tree):
    data = (tree.root / "config.xml").read_bytes()
    changed = edit_config(data, {"ignore_upload_certificates": "1"})
    found = failed(with_file(healthy, "config.xml", changed))
    assert set(found) == {"installation"}
    assert "<ignore_upload_certificates> = 0" in found["installation"].text


def test_configuration_that_cannot_be_edited_is_named(healthy, tree):
    data = (tree.root / "config.xml").read_bytes()
    changed = data.replace(b"<daemons>", b"<daemons >").replace(b"feeder", b"other")
    assert set(failed(with_file(healthy, "config.xml", changed))) == {"installation"}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"socket": "No such file"}, "socket"),
        ({"can_make": False}, "tools"),
        ({"interpreter": "as user 7: no"}, "entry points"),
        ({"daemons": ()}, "daemons"),
    ],
)
def test_part_that_is_missing_is_named(healthy, fields, name):
    assert set(failed(replace(healthy, **fields))) == {name}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("download", "set download to 2775"),
        ("bin/stoilo_validate", "write bin/stoilo_validate"),
        ("upload_private", "no private upload key"),
    ],
)
def test_place_with_another_mode_is_named(healthy, place, said):
    modes = dict(healthy.facts.modes)
    del modes[place]
    (found,) = failed(with_facts(healthy, modes=modes)).values()
    assert said in found.text


def test_loose_mode_of_the_configuration_warns(healthy):
    seen = with_facts(healthy, modes=healthy.facts.modes | {"config.xml": 0o644})
    assert "set config.xml" in warned(seen)["installation"].text
    assert is_healthy(examine(seen))


@pytest.mark.parametrize("name", ["plan_class_spec.xml", "bin/stoilo_compare"])
def test_file_of_ours_that_was_changed_is_named(healthy, name):
    found = failed(with_file(healthy, name, b""))
    assert f"write {name}" in found["installation"].text


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"join_cache_level": 2}, "join-cache"),
        ({"submitters": 1}, "submit-rpc"),
        ({"apps": ("pure",)}, "installation"),
    ],
)
def test_trap_of_the_database_is_named(healthy, fields, name):
    assert set(failed(with_database(healthy, **fields))) == {name}


def test_clock_of_the_database_that_is_wrong_is_named(healthy):
    assert set(failed(with_queues(healthy, clock_ahead_s=-3600.0))) == {"clock"}


def numeric(seen):
    offered = seen.facts.database.offered
    return next(one for one in offered if one.plan_class == "stoilo_numeric")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan_class": ""}, "did not choose"),
        ({"xml": b"<app_version>"}, "cannot be read"),
    ],
)
def test_version_that_clients_would_not_take_is_named(healthy, changes, said):
    old = numeric(healthy)
    others = tuple(one for one in healthy.facts.database.offered if one is not old)
    bad = with_database(healthy, offered=(replace(old, **changes), *others))
    assert any(said in finding.text for finding in failed(bad).values())
    assert all(name.startswith("version ") for name in failed(bad))


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (lambda _size, _md5: None, "not in the download directory"),
        (lambda size, _md5: (size, ""), "will refuse"),
        (lambda size, md5: (size + 1, md5), "instead of"),
    ],
)
def test_program_that_clients_would_not_take_is_named(healthy, measured, said):
    programs = {name: measured(*one) for name, one in healthy.programs.items()}
    programs = {name: one for name, one in programs.items() if one is not None}
    bad = failed(replace(healthy, programs=programs))
    assert len(bad) == 12
    assert all(said in finding.text for finding in bad.values())


def test_level_without_a_program_is_named(healthy):
    offered = healthy.facts.database.offered
    left = tuple(one for one in offered if one.app != "tensor")
    assert set(failed(with_database(healthy, offered=left))) == {"version tensor"}


def test_program_signed_by_another_key_is_named(healthy, tmp_path):
    other = StockTree(tmp_path).signer.key.text
    assert len(failed(with_facts(healthy, key=other))) == 12


def test_daemon_is_alive_only_when_its_process_runs_its_program(tree):
    tree.start_daemon("feeder.pid", os.getpid())  # alive, but no feeder
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    feeder = next(one for one in seen.daemons if one.daemon.program == "feeder")
    assert (feeder.pid, feeder.alive) == (os.getpid(), False)


@pytest.mark.parametrize(("mode", "closed"), [(0o2775, ()), (0o700, ("3f",))])
def test_download_folder_that_the_web_server_cannot_read_is_named(
    tmp_path, mode, closed
):
    tree = StockTree(tmp_path)
    (tree.root / "download" / "3f").mkdir()
    (tree.root / "download" / "3f").chmod(mode)
    tree.write("keys/upload_private", "upload")
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    assert seen.facts.closed_folders == closed
    assert any("403" in one.text for one in examine(seen)) == bool(closed)
    install_project(tree.root, tree.offer, url=tree.url)
    after = read_snapshot(tree.project(), web=False, url=tree.url)
    assert after.facts.closed_folders == ()


def test_backlog_is_counted_in_the_database(tmp_path):
    tree = StockTree(tmp_path)
    tree.sql("INSERT INTO workunit (transition_time, assimilate_state) VALUES (2e9, 1)")
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    assert seen.queues.backlogs["assimilations"].count == 1
    assert seen.queues.backlogs["transitions"].count == 0


def test_database_that_does_not_answer_hides_nothing_else(tmp_path):
    tree = StockTree(tmp_path)
    tree.write("keys/code_sign_private", render_boinc_private(tree.signer.private))
    seen = read_snapshot(tree.project(), web=False, url=f"sqlite:///{tmp_path}/no/x")
    assert seen.queues.trouble
    assert {"database", "private-key"} <= set(failed(seen))


@pytest.mark.parametrize("name", ["pid_{host}/feeder.pid", "log_{host}/feeder.log"])
def test_pipe_in_a_file_s_place_does_not_hold_the_doctor_up(tmp_path, name):
    tree = StockTree(tmp_path)
    install_project(tree.root, tree.offer, url=tree.url)
    path = tree.root / name.format(host=short_host())
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    assert "daemon feeder" in failed(
        read_snapshot(tree.project(), web=False, url=tree.url)
    )


def test_disabled_daemon_warns(healthy):
    off = DaemonState(Daemon("feeder", disabled=True), 0, alive=False)
    assert "daemon feeder" in warned(replace(healthy, daemons=(off,)))


@pytest.mark.parametrize(("there", "named"), [("27029", True), ("27032", False)])
def test_tables_that_an_upgrade_has_not_changed_are_named(tree, healthy, there, named):
    """As `html/ops/upgrade_db.php` compares them; what it cannot say is not said."""
    assert "tables" not in {one.name for one in examine(healthy)}
    ops = tree.root / "html" / "ops"
    ops.mkdir(parents=True, exist_ok=True)
    (ops / "db_update.php").write_text(
        '    array(27029, "update_2_15_2025"),\n    array(27032, "update_5_2_2026b"),\n'
    )
    (tree.root / "db_revision").write_text(there)
    read = read_snapshot(tree.project(), web=False, url=tree.url)
    found = failed(with_facts(healthy, tables=read.facts.tables))
    (tree.root / "db_revision").unlink()
    assert ("tables" in found) == named


def test_pages_that_end_in_php_say_what_an_upgrade_leaves(healthy):
    broken = with_web(healthy, master_page=WebAnswer("http://p/", 500))
    assert "html/user/index.php" in failed(broken)["master page"].advice
    away = with_web(healthy, master_page=WebAnswer("http://p/", 404))
    assert "html/user/index.php" not in failed(away)["master page"].advice
