"""Certificates of a test cluster: one authority, and what it signs for servers, components and nodes."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = dt.timedelta(days=30)
SKEW = dt.timedelta(days=2)  # a VM's clock may be behind


class Authority:
    """A certificate authority below a folder: ca.crt, and NAME.crt with NAME.key per issued certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("test-ca", "")
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, common_name: str, organization: str = "", alternatives: Sequence[str] = ()) -> tuple[Path, Path]:
        """Return (certificate, key) files for a subject; alternatives are IP addresses or DNS names."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(_subject(common_name, organization), self._name, key.public_key()).add_extension(usage, critical=False)
        if alternatives:
            names = x509.SubjectAlternativeName([_alternative(each) for each in alternatives])
            builder = builder.add_extension(names, critical=False)
        certificate, private = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        signed = builder.sign(self._key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(private, key)
        return certificate, private

    def signing_pair(self, name: str) -> tuple[Path, Path]:
        """Return (public, private) key files, with which service account tokens are checked and signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        public, private = self.folder / f"{name}.pub", self.folder / f"{name}.key"
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
        _write_key(private, key)
        return public, private


def _subject(common_name: str, organization: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
