"""Each fault has its finding, and a healthy project has none."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from stoilo.server.engines.stock.checkup.checks import examine, is_healthy
from stoilo.server.engines.stock.checkup.reading import read_snapshot
from stoilo.server.engines.stock.checkup.snapshot import (
    Answer,
    Backlog,
    DaemonState,
    EntryPoint,
    OwnView,
    Space,
    Verdict,
    WebView,
)
from stoilo.server.engines.stock.installation.configtext import (
    Daemon,
    edit_config,
    read_config,
)
from stoilo.server.engines.stock.installation.installing import install_project
from stoilo.server.engines.stock.installation.privatekeys import KeySearch
from stoilo.server.engines.stock.installation.reading import short_host
from stoilo.signer.boinc_keys import render_boinc_private
from tests.support.stockproject import StockTree

UP = WebView(
    master=Answer("http://p/", 200, '<link rel="boinc_scheduler" href="http://p/cgi">'),
    scheduler=Answer("http://p/cgi", 200, "<scheduler_reply>"),
    upload=Answer("http://p/up", 200, "<data_server_reply>"),
    download=Answer("http://p/download/x", 200, "\x7fELF"),
    config=Answer("http://p/get_project_config.php", 200, "<project_config>"),
)


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
    points = tuple(
        replace(one, present=True, executable=True) for one in seen.entry_points
    )
    room = (Space("project", 10**12, 10**11),)
    return replace(
        seen,
        daemons=alive,
        entry_points=points,
        tools=points[:2],
        socket="",
        cron_age_s=10,
        web=UP,
        spaces=room,
    )


def failed(seen):
    return {one.name: one for one in examine(seen) if one.verdict is Verdict.FAIL}


def with_database(seen, **fields):
    return replace(seen, database=replace(seen.database, **fields))


def with_web(seen, **answers):
    return replace(seen, web=replace(seen.web, **answers))


def test_project_as_installed_is_healthy(healthy):
    assert failed(healthy) == {}
    assert is_healthy(examine(healthy))


def test_killed_daemon_is_named_with_the_end_of_its_log(healthy):
    first, *others = healthy.daemons
    dead = replace(first, alive=False, last_words="Duplicate entry 'w_1'")
    finding = failed(replace(healthy, daemons=(dead, *others)))["daemon feeder"]
    assert "is gone" in finding.text
    assert "Duplicate entry" in finding.text


def test_database_that_is_down_is_the_only_cause_named_for_what_it_hides(healthy):
    dead = tuple(replace(one, alive=False) for one in healthy.daemons)
    down = with_database(healthy, trouble="Can't connect", versions=(), apps=())
    down = with_web(down, scheduler=Answer("http://p/cgi", 200, "<project_is_down/>"))
    assert set(failed(replace(down, daemons=dead))) == {"database"}


def test_full_disk_is_named(healthy):
    full = replace(healthy, spaces=(Space("upload", 10**12, 10**6),))
    assert "full" in failed(full)["disk upload"].text


def test_disk_without_room_for_files_is_named(healthy):
    full = replace(healthy, spaces=(Space("upload", 10**12, 10**11, 3),))
    assert "3 more files" in failed(full)["disk upload"].text


def test_stopped_project_is_named_and_its_daemons_are_not_blamed(healthy):
    dead = tuple(replace(one, alive=False) for one in healthy.daemons)
    stopped = replace(healthy, stop_files=("stop_sched",), daemons=dead)
    stopped = with_web(
        stopped, scheduler=Answer("http://p/cgi", 200, "<project_is_down/>")
    )
    assert set(failed(stopped)) == {"stopped", "scheduler"}
    assert "stopped" in failed(stopped)["scheduler"].text


def test_scheduler_without_feeder_says_so(healthy):
    down = with_web(
        healthy, scheduler=Answer("http://p/cgi", 200, "<project_is_down/>")
    )
    assert "feeder" in failed(down)["scheduler"].text


@pytest.mark.parametrize(
    "name", ["transitions", "validations", "assimilations", "deletions"]
)
def test_slow_stage_is_named(healthy, name):
    slow = with_database(healthy, **{name: Backlog(3, 500)})
    assert set(failed(slow)) == {f"backlog {name}"}
    assert failed(with_database(healthy, **{name: Backlog(3, 5)})) == {}


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({"uncreated": Backlog(3, 500)}, "backlog creation"),
        ({"undelivered": Backlog(3, 500)}, "backlog outcomes"),
        ({"undelivered": Backlog(3, 5), "refused": 1}, "backlog outcomes"),
        ({"foreign": 1, "foreign_name": "w_1"}, "names"),
    ],
)
def test_what_waits_between_boinc_and_the_server_is_named(healthy, own, name):
    assert set(failed(with_database(healthy, own=OwnView(**own)))) == {name}


def test_what_waits_for_a_moment_is_well(healthy):
    own = OwnView(uncreated=Backlog(3, 5), undelivered=Backlog(3, 5))
    assert failed(with_database(healthy, own=own)) == {}


@pytest.mark.parametrize(
    ("field", "answer", "name"),
    [
        ("master", Answer("u", trouble="refused"), "master page"),
        ("master", Answer("u", 200, "Apache works"), "master page"),
        ("scheduler", Answer("u", 500), "scheduler"),
        ("upload", Answer("u", 404), "upload handler"),
        ("download", Answer("u", 403), "download"),
        ("config", Answer("u", 200, "<b>Deprecated</b>"), "php"),
    ],
)
def test_url_that_does_not_serve_clients_is_named(healthy, field, answer, name):
    assert set(failed(with_web(healthy, **{field: answer}))) == {name}


def test_private_key_on_the_server_fails(healthy):
    seen = replace(healthy, keys=KeySearch(("keys/code_sign_private",)))
    assert "keys/code_sign_private" in failed(seen)["private-key"].text


def test_place_of_keys_that_nobody_could_look_into_fails(healthy):
    seen = replace(healthy, keys=KeySearch(closed=("keys",)))
    assert set(failed(seen)) == {"closed-keys"}
    assert "private-key" not in {one.name for one in examine(seen)}


def test_other_place_that_nobody_could_look_into_warns(healthy):
    found = examine(replace(healthy, keys=KeySearch(unseen=("html/x",))))
    assert "unseen-files" in {one.name for one in found if one.verdict is Verdict.WARN}
    assert is_healthy(found)


def test_plan_classes_that_are_not_utf8_are_read(tmp_path):
    tree = StockTree(tmp_path)
    (tree.root / "plan_class_spec.xml").write_bytes(b"<!-- J\xfcrgen -->")
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    assert "plan classes" in failed(seen)


def test_setting_of_make_project_fails(healthy, tree):
    data = (tree.root / "config.xml").read_bytes()
    changed = edit_config(data, {"ignore_upload_certificates": "1"})
    seen = replace(healthy, config=read_config(changed))
    assert set(failed(seen)) == {"setting ignore_upload_certificates"}


def test_quorum_in_a_template_fails(healthy):
    text = "<workunit><min_quorum>1</min_quorum></workunit>"
    assert set(failed(replace(healthy, templates={"stoilo_in_1": text}))) == {
        "templates"
    }


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"socket": "No such file"}, "socket"),
        (
            {"entry_points": (EntryPoint("x", present=False, executable=False),)},
            "entry points",
        ),
        (
            {"entry_points": (EntryPoint("x", present=True, executable=False),)},
            "entry points",
        ),
        ({"tools": (EntryPoint("x", present=False, executable=False),)}, "tools"),
        ({"upload_key": None}, "upload-key"),
        ({"modes": {"download": 0o755, "upload": 0o2775}}, "mode download"),
        ({"plan_classes": ""}, "plan classes"),
        ({"daemons": ()}, "daemons"),
    ],
)
def test_part_that_is_missing_is_named(healthy, fields, name):
    assert set(failed(replace(healthy, **fields))) == {name}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"join_cache_level": 2}, "join-cache"),
        ({"submitters": 1}, "submit-rpc"),
        ({"clock_ahead_s": -3600.0}, "clock"),
        ({"apps": ("pure",)}, "apps"),
    ],
)
def test_trap_of_the_database_is_named(healthy, fields, name):
    assert set(failed(with_database(healthy, **fields))) == {name}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan_class": ""}, "did not choose"),
        ({"xml": b"<app_version>"}, "cannot be read"),
        ({"sizes": {}}, "not in the download directory"),
        ({"md5s": {}}, "will refuse"),
    ],
)
def test_program_that_clients_would_not_take_is_named(healthy, changes, said):
    numeric = next(
        one for one in healthy.database.versions if one.plan_class == "stoilo_numeric"
    )
    others = tuple(one for one in healthy.database.versions if one is not numeric)
    bad = with_database(healthy, versions=(replace(numeric, **changes), *others))
    assert any(said in finding.text for finding in failed(bad).values())
    assert all(name.startswith("version ") for name in failed(bad))


def test_level_without_a_program_is_named(healthy):
    left = tuple(one for one in healthy.database.versions if one.app != "tensor")
    assert set(failed(with_database(healthy, versions=left))) == {"version tensor"}


def test_program_signed_by_another_key_is_named(healthy, tmp_path):
    other = StockTree(tmp_path).signer.key.text
    assert len(failed(replace(healthy, code_sign_key=other))) == 12


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
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    assert seen.closed_folders == closed
    assert ("mode download folders" in failed(seen)) == bool(closed)


def test_backlog_is_counted_in_the_database(tmp_path):
    tree = StockTree(tmp_path)
    tree.sql("INSERT INTO workunit (transition_time, assimilate_state) VALUES (2e9, 1)")
    seen = read_snapshot(tree.project(), web=False, url=tree.url)
    assert seen.database.assimilations.count == 1
    assert seen.database.transitions.count == 0


def test_database_that_does_not_answer_hides_nothing_else(tmp_path):
    tree = StockTree(tmp_path)
    tree.write("keys/code_sign_private", render_boinc_private(tree.signer.private))
    seen = read_snapshot(tree.project(), web=False, url=f"sqlite:///{tmp_path}/no/x")
    assert seen.database.trouble
    assert {"database", "private-key"} <= set(failed(seen))


@pytest.mark.parametrize(
    "name", ["pid_{host}/feeder.pid", "log_{host}/feeder.log", "templates/stoilo_x"]
)
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
    found = examine(replace(healthy, daemons=(off,)))
    assert [one.verdict for one in found if one.name == "daemon feeder"] == ["warn"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("homogeneous_redundancy", 2),
        ("homogeneous_app_version", 1),
        ("target_nresults", 3),
    ],
)
def test_replication_that_an_apps_row_asks_for_is_named(tmp_path, column, value):
    tree = StockTree(tmp_path)
    install_project(tree.root, tree.offer, url=tree.url)
    tree.sql("INSERT INTO app (name, target_nresults) VALUES ('theirs', 2)")
    before = examine(read_snapshot(tree.project(), web=False, url=tree.url))
    assert "ok" in [one.verdict for one in before if one.name == "replication"]
    tree.sql(f"UPDATE app SET {column} = ? WHERE name = 'pure'", [value])  # noqa: S608 - ours
    after = examine(read_snapshot(tree.project(), web=False, url=tree.url))
    (said,) = [one for one in after if one.name == "replication pure"]
    assert said.verdict == "warn"
    assert column in said.text


def test_replication_by_machine_in_config_is_named(healthy, tree):
    data = (tree.root / "config.xml").read_bytes()
    config = read_config(edit_config(data, {"homogeneous_redundancy": "1"}))
    found = examine(replace(healthy, config=config))
    assert [one.verdict for one in found if one.name == "replication"] == ["warn"]


@pytest.mark.parametrize(("there", "verdict"), [("27029", "fail"), ("27032", "ok")])
def test_tables_that_an_upgrade_has_not_changed_are_named(
    tree, healthy, there, verdict
):
    """As `html/ops/upgrade_db.php` compares them; what it cannot say is not said."""
    assert "tables" not in {one.name for one in examine(healthy)}
    ops = tree.root / "html" / "ops"
    ops.mkdir(parents=True, exist_ok=True)
    (ops / "db_update.php").write_text(
        '    array(27029, "update_2_15_2025"),\n    array(27032, "update_5_2_2026b"),\n'
    )
    (tree.root / "db_revision").write_text(there)
    read = read_snapshot(tree.project(), web=False, url=tree.url)
    found = {one.name: one for one in examine(replace(healthy, tables=read.tables))}
    (tree.root / "db_revision").unlink()
    assert found["tables"].verdict == verdict


def test_pages_that_end_in_php_say_what_an_upgrade_leaves(healthy):
    broken = with_web(healthy, master=Answer("http://p/", 500))
    assert "html/user/index.php" in failed(broken)["master page"].advice
    away = with_web(healthy, master=Answer("http://p/", 404))
    assert "html/user/index.php" not in failed(away)["master page"].advice
