"""Keys and certificates of made-up companies under one authority, made once per process."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from protoevfl.deploy.envelope import Envelope, from_facts
from protoevfl.deploy.seal import Keys, Opened, seal, unseal


@cache
def private_key(name: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(65537, 2048)


@cache
def certificate(name: str, root: str = "authority", days: int = 30) -> bytes:
    """PEM, issued by `root` for `name`; a negative `days` is over already."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    until = datetime.now(UTC) + timedelta(days=days)
    made = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(root))
        .public_key(private_key(name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - timedelta(days=60))
        .not_valid_after(until)
        .sign(private_key(root), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@cache
def keys(name: str, root: str = "authority", days: int = 30) -> Keys:
    from cryptography.hazmat.primitives import serialization

    kind = serialization.PrivateFormat.TraditionalOpenSSL
    plain = private_key(name).private_bytes(
        serialization.Encoding.PEM, kind, serialization.NoEncryption()
    )
    return Keys(name, plain, certificate(name, root, days), certificate(root, root))


def put(folder: Path, name: str) -> None:
    """What provisioning leaves of them in a kit."""
    startup = folder / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    mine = keys(name)
    for file, data in (
        ("client.key", mine.key),
        ("client.crt", mine.certificate),
        ("rootCA.pem", mine.root),
    ):
        (startup / file).write_bytes(data)


def header(frame: bytes) -> Envelope:
    """What whoever relays a frame can read of it."""
    length = int.from_bytes(frame[4:8], "big")
    facts = json.loads(frame[8 : 8 + length])
    return from_facts(json.loads(facts["signed"])["envelope"])


def opened(frame: bytes) -> Opened:
    """The frame as its receiver reads it."""
    return unseal(keys(header(frame).to), frame)


def said(frame: bytes) -> str:
    """Kind and text of an answer."""
    found = opened(frame)
    text = found.body.decode() if found.envelope.kind == "refusal" else ""
    return f"{found.envelope.kind}: {text}"


def sealed(envelope: Envelope, body: bytes = b"") -> bytes:
    """A frame of the sender that the envelope names."""
    receiver = None if envelope.kind == "hello" else keys(envelope.to).certificate
    return seal(keys(envelope.sender), envelope, body, receiver)
