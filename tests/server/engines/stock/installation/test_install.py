from __future__ import annotations

import dataclasses
import stat

import pytest

from stoilo.core.boinc.codesign import parse_boinc_public
from stoilo.core.errors import InternalError, UsageError
from stoilo.server.engines.programs import CodeSignKey, FormerKey
from stoilo.server.engines.stock.installation.facts import DatabaseFacts, read_facts
from stoilo.server.engines.stock.installation.install import Installer, install_project
from stoilo.server.engines.stock.installation.plan import RunTool, WriteFile, make_plan
from stoilo.server.engines.stock.project.levels import APPS, plan_classes
from stoilo.server.release.parts import ReleasedPrograms
from stoilo.signer.boinc_keys import render_boinc_private, sign_key_change
from tests.support.programs import ProgramSigner
from tests.support.stockproject import CONFIG, StockTree


@pytest.fixture
def tree(tmp_path):
    return StockTree(tmp_path)


def install(tree, offer=None, **options):
    return install_project(tree.root, offer or tree.offer, url=tree.url, **options)


def contents(tree):
    return {path: path.read_bytes() for path in tree.root.rglob("*") if path.is_file()}


def notes(plan):
    return {note.name for note in plan.notes}


def test_second_installation_has_nothing_to_do(tree):
    assert install(tree).steps
    before = contents(tree)
    assert install(tree).steps == ()
    assert contents(tree) == before


def test_dry_run_changes_nothing(tree):
    before = contents(tree)
    assert install(tree, dry_run=True).steps
    assert contents(tree) == before


def test_every_level_is_an_app_with_a_signed_version(tree):
    install(tree)
    rows = tree.sql("SELECT name FROM app ORDER BY name")
    assert [name for (name,) in rows] == sorted(APPS)
    rows = tree.sql("SELECT plan_class FROM app_version")
    classes = [name for app in APPS for name in plan_classes(app)]
    assert sorted(name for (name,) in rows) == sorted(classes)


def test_former_configuration_stays_beside_the_new_one(tree):
    install(tree)
    (kept,) = tree.root.glob("config.xml.*")
    assert kept.read_text() == CONFIG
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_no_private_key_is_asked_for_or_made(tree):
    assert "private-key" not in notes(install(tree))
    assert [path.name for path in (tree.root / "keys").iterdir()] == [
        path.name
        for path in (tree.root / "keys").iterdir()
        if "code_sign_private" not in path.name
    ]


@pytest.mark.parametrize(
    "name", ["keys/code_sign_private", "keys/upload_private", "keys/notes", "backup"]
)
def test_private_key_is_found_under_any_name(tree, name):
    tree.write(name, render_boinc_private(tree.signer.private))
    tree.write("keys/code_sign_public", tree.signer.key.text)
    assert "private-key" in notes(install(tree))


def test_new_release_makes_the_next_version(tree):
    install(tree)
    program = tree.signer.program(b"#!/bin/sh\nexit\n")
    install(tree, ReleasedPrograms((program,), tree.signer.key))
    rows = tree.sql("SELECT DISTINCT version_num FROM app_version ORDER BY 1")
    assert rows == [(100,), (101,)]


def test_computers_that_know_another_key_stop_it(tree):
    tree.sql("INSERT INTO host (id) VALUES (1)")
    before = contents(tree)
    with pytest.raises(UsageError, match="STO-B023"):
        install(tree)
    assert contents(tree) == before


def test_old_key_that_vouches_goes_out_with_the_new_one(tree):
    tree.sql("INSERT INTO host (id) VALUES (1)")
    old, new = ProgramSigner(), tree.signer
    tree.write("keys/code_sign_public", old.key.text)
    vouches = sign_key_change(parse_boinc_public(new.key.text), old.private)
    key = CodeSignKey(new.key.text, (FormerKey(old.key.text, vouches),))
    install(tree, ReleasedPrograms(tree.offer.programs, key))
    keys = tree.root / "keys"
    assert (keys / "code_sign_public").read_text() == new.key.text
    assert (keys / "signature_stripped_0").read_text() == vouches


def test_too_many_apps_are_refused(tree):
    for number in range(8):
        tree.sql("INSERT INTO app (name) VALUES (?)", [f"theirs{number}"])
    with pytest.raises(UsageError, match="STO-B021"):
        install(tree)


def test_hazards_of_the_surroundings_are_named(tree):
    tree.sql("INSERT INTO user_submit VALUES (1)")
    tree.sql("INSERT INTO result (server_state) VALUES (4)")
    assert {"submit-rpc", "old-results"} <= notes(install(tree))


def test_join_cache_is_named(tree):
    database = DatabaseFacts(join_cache_level=2)
    facts = dataclasses.replace(read_facts(tree.project()), database=database)
    plan = make_plan(facts, tree.offer.programs, tree.offer.key, ())
    assert "join-cache" in notes(plan)


def test_database_that_does_not_answer_stops_it_and_says_why(tree, tmp_path):
    with pytest.raises(InternalError, match=r"unable to open .* \[STO-B025\]"):
        install_project(tree.root, tree.offer, url=f"sqlite:///{tmp_path}/none/x")


def test_failing_tool_stops_before_the_configuration(tree):
    tree.write("bin/update_versions", "#!/bin/sh\necho no .sig file\nexit 1\n")
    with pytest.raises(InternalError, match=r"no \.sig file"):
        install(tree)
    assert (tree.root / "config.xml").read_text() == CONFIG


def test_installation_goes_on_where_it_stopped(tree):
    good = (tree.root / "bin/update_versions").read_text()
    tree.write("bin/update_versions", "#!/bin/sh\nexit 1\n")
    with pytest.raises(InternalError):
        install(tree)
    tree.write("bin/update_versions", good)
    assert install(tree).steps
    assert install(tree).steps == ()


def test_file_that_cannot_be_written_leaves_what_was_there(tree):
    tree.write("folder", "a file")
    with pytest.raises(InternalError, match="STO-B026"):
        Installer(tree.root).do(WriteFile("folder/x", b"new", 0o644, "a test"))
    assert (tree.root / "folder").read_text() == "a file"


def test_tool_that_is_missing_is_our_error(tree):
    with pytest.raises(InternalError, match="STO-B026"):
        Installer(tree.root).do(RunTool(("bin/none",), "a test"))


def test_certificates_are_asked_for_once_every_copy_has_one(tree):
    tree.sql("INSERT INTO result (server_state) VALUES (4)")
    assert "old-results" in notes(install(tree))
    tree.sql("UPDATE result SET xml_doc_in = '<xml_signature>\nab\n</xml_signature>'")
    assert "old-results" not in notes(install(tree))
    assert tree.project().config.flag("ignore_upload_certificates") is False


@pytest.mark.parametrize("name", ["project.xml", "plan_class_spec.xml"])
def test_bytes_that_are_not_utf8_stay_as_they_are(tree, name):
    path = tree.root / name
    text = path.read_bytes() if path.exists() else b"<plan_classes>\n</plan_classes>\n"
    path.write_bytes(b"<!-- J\xfcrgen -->\n" + text)
    install(tree)
    assert path.read_bytes().startswith(b"<!-- J\xfcrgen -->\n<")
    assert install(tree).steps == ()
