"""TLS with a CA of our own: made once per data directory, valid on this machine only.

The certificate names localhost, 127.0.0.1 and ::1 and what `names` adds. Keys are ECDSA
P-256 (gRPC's library has no Ed25519 certificates), files 0600 in a 0700 directory.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

from stoilo.core.files import write_durably

__all__ = ["LOCAL_NAMES", "TlsFiles", "ensure_tls"]

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
LIFE_DAYS = 825
RENEW_DAYS = 30


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM bytes for the gRPC server and for clients."""

    ca: bytes
    certificate: bytes
    key: bytes


def ensure_tls(
    directory: Path, now: dt.datetime, names: Sequence[str] = LOCAL_NAMES
) -> TlsFiles:
    """Return the directory's CA, certificate and key; makes or renews them."""
    paths = [directory / name for name in ("ca.pem", "server.pem", "server.key")]
    if all(path.exists() for path in paths):
        ca, certificate, key = (path.read_bytes() for path in paths)
        if _still_good(certificate, now, names):
            return TlsFiles(ca, certificate, key)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = _make(now, names)
    for path, data in zip(paths, (made.ca, made.certificate, made.key), strict=True):
        write_durably(path, data, mode=0o600)
    return made


def _still_good(pem: bytes, now: dt.datetime, names: Sequence[str]) -> bool:
    certificate = x509.load_pem_x509_certificate(pem)
    extension = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    held = {str(name.value) for name in extension.value}
    margin = dt.timedelta(days=RENEW_DAYS)
    return set(names) <= held and certificate.not_valid_after_utc - margin > now


def _make(now: dt.datetime, names: Sequence[str]) -> TlsFiles:
    """Make a CA, sign one certificate and forget the CA's key."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("stoilo local CA")
    ca = (
        _builder(now, ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        _builder(now, _name("stoilo server"), ca_name, key.public_key())
        .add_extension(
            x509.SubjectAlternativeName([_subject(name) for name in names]),
            critical=False,
        )
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return TlsFiles(_pem(ca), _pem(certificate), _key_pem(key))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    now: dt.datetime,
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=LIFE_DAYS))
    )


def _subject(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
