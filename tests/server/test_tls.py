from __future__ import annotations

import datetime as dt
import stat
from pathlib import Path

from cryptography import x509

from stoilo.server.tls import LIFE_DAYS, ensure_tls

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_certificate_names_this_machine_and_is_signed_by_the_ca(tmp_path: Path) -> None:
    made = ensure_tls(tmp_path / "tls", NOW)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert {str(name.value) for name in names.value} == {
        "localhost",
        "127.0.0.1",
        "::1",
    }
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(made.ca))


def test_files_are_private_and_kept_over_restarts(tmp_path: Path) -> None:
    first = ensure_tls(tmp_path / "tls", NOW)
    modes = {stat.S_IMODE(page.stat().st_mode) for page in (tmp_path / "tls").iterdir()}
    assert modes == {0o600}
    assert ensure_tls(tmp_path / "tls", NOW) == first


def test_certificate_near_its_end_or_lacking_a_name_is_renewed(tmp_path: Path) -> None:
    first = ensure_tls(tmp_path / "tls", NOW)
    later = NOW + dt.timedelta(days=LIFE_DAYS - 10)
    second = ensure_tls(tmp_path / "tls", later)
    third = ensure_tls(tmp_path / "tls", later, ("localhost", "lab.example"))
    assert len({first.ca, second.ca, third.ca}) == 3
