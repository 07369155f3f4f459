from __future__ import annotations

import pytest
from stock_bench import StockBench

from stoilo.core.errors import TrustError, UsageError
from stoilo.server.engines.stock.app_versions import signatures_in
from tests.support.programs import LINUX, ProgramSigner


@pytest.fixture
def bench(tmp_path, clock):
    made = StockBench(tmp_path / "project", clock)
    yield made
    made.close()


@pytest.fixture(scope="module")
def signer():
    return ProgramSigner()


def install(bench, program, version=101):
    """Do what install and update_versions do."""
    infos = "".join(
        f"<file_info>\n    <name>f{number}</name>\n    <file_signature>\n"
        f"{file.signature}\n    </file_signature>\n</file_info>\n"
        for number, file in enumerate((program.launcher, program.verifier))
    )
    rows = [
        {
            "appid": app,
            "version_num": version,
            "platformid": 1,
            "xml_doc": f"{infos}<app_version></app_version>".encode(),
        }
        for app in (1, 2, 3)
    ]
    bench.daemons._database.insert("app_version", rows)


def test_project_that_runs_the_releases_programs_is_content(bench, signer):
    program = signer.program()
    install(bench, program)
    bench.engine.set_programs([program], signer.key)


def test_project_that_runs_others_is_told_to_install(bench, signer):
    install(bench, signer.program())
    newer = signer.program(verifier=b"newer")
    with pytest.raises(UsageError, match="STO-B008"):
        bench.engine.set_programs([newer], signer.key)
    install(bench, newer, version=102)
    bench.engine.set_programs([newer], signer.key)


def test_signature_of_another_key_is_refused_whatever_is_installed(bench, signer):
    program = signer.program()
    install(bench, program)
    with pytest.raises(TrustError, match="STO-K076"):
        bench.engine.set_programs([program], ProgramSigner().key)


def test_two_programs_for_one_platform_make_no_sense(bench, signer):
    twice = [signer.program(platform=LINUX)] * 2
    with pytest.raises(UsageError, match="STO-E001"):
        bench.engine.set_programs(twice, signer.key)


@pytest.mark.parametrize("data", [b"", b"<", b"<a></b>", b"\0", b"x" * 100_000])
def test_broken_description_has_no_signatures(data):
    assert signatures_in(data) == frozenset()
