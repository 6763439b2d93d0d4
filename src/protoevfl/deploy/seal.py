"""Frames that only their receiver can read and only their sender can have made, whoever relays them.

    frame = b"PEV2" | header length (4 bytes) | header (JSON) | body

    header: {"signed": text, "signature": ...}
    text:   the envelope's fields, the sender's certificate, the wrapped key, SHA-256 of the body

The sender signs the text (RSA-PSS) with the key of its certificate; the certificate must be issued by
the project's authority for the name in the envelope, and be valid today. The body is encrypted with a
fresh key (AES-256-GCM) that is wrapped for the receiver's certificate (RSA-OAEP); the envelope is
authenticated with it, so nobody can sign another's body as its own. What the hub says about the
sender is not needed for any of this.
"""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from protoevfl.deploy.envelope import (
    MAX_BODY,
    MAX_HEADER,
    Envelope,
    EnvelopeError,
    from_facts,
    to_facts,
)
from protoevfl.errors import UserError

MAGIC = b"PEV2"
OPEN = ("hello", "refusal")  # may be sent to somebody whose certificate is not known (yet)
_NONCE = bytes(12)  # every body has a fresh key


@dataclass(frozen=True)
class Keys:
    """A party's private key and certificate, and the certificate of the project's authority (all
    PEM)."""

    name: str
    key: bytes
    certificate: bytes
    root: bytes

    @classmethod
    def of_kit(cls, folder: Path, name: str) -> "Keys":
        parts = []
        for file in ("client.key", "client.crt", "rootCA.pem"):
            try:
                parts.append((folder / "startup" / file).read_bytes())
            except OSError as error:
                raise UserError(
                    f"cannot read {folder / 'startup' / file}: {error.strerror}; ask for the kit "
                    "again"
                ) from None
        return cls(name, *parts)

    @cached_property
    def private(self) -> Any:
        from cryptography.hazmat.primitives import serialization

        return serialization.load_pem_private_key(self.key, password=None)


@dataclass(frozen=True)
class Opened:
    """A frame whose sender is proven."""

    envelope: Envelope
    body: bytes
    certificate: bytes  # of the sender
    digest: str  # of the signed text: what an answer refers to


def seal(keys: Keys, envelope: Envelope, body: bytes = b"", receiver: bytes | None = None) -> bytes:
    """The frame; `receiver` is the certificate of the one who may read the body."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if receiver is None and envelope.kind not in OPEN:
        raise ValueError(f"a {envelope.kind} frame is never sent in clear")
    facts = to_facts(envelope)
    wrapped = b""
    if receiver is not None:
        once = secrets.token_bytes(32)
        wrapped = _public(receiver).encrypt(once, _oaep())
        body = AESGCM(once).encrypt(_NONCE, body, _bound(facts))
    text = json.dumps(
        {
            "envelope": facts,
            "certificate": keys.certificate.decode(),
            "key": base64.b64encode(wrapped).decode(),
            "sha256": hashlib.sha256(body).hexdigest(),
        },
        sort_keys=True,
    )
    signature = base64.b64encode(keys.private.sign(text.encode(), _pss(), _sha256())).decode()
    header = json.dumps({"signed": text, "signature": signature}).encode()
    if len(header) > MAX_HEADER:
        raise EnvelopeError(f"header of {len(header)} bytes, over the limit of {MAX_HEADER}")
    return MAGIC + len(header).to_bytes(4, "big") + header + body


def unseal(keys: Keys, frame: bytes, max_body: int = MAX_BODY) -> Opened:
    """The frame's envelope and body, or EnvelopeError; nothing of it is used before its signature
    has been checked. Takes as much memory as the frame again, and no more whatever it claims."""
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    header, sent = _split(frame, max_body + 16)  # the tag of AES-GCM
    try:
        text = header["signed"]
        facts = json.loads(text)
        envelope = from_facts(facts["envelope"])
        certificate = facts["certificate"].encode()
        wrapped = base64.b64decode(facts["key"], validate=True)
        signature = base64.b64decode(header["signature"], validate=True)
        checksum = str(facts["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise EnvelopeError("not a signed frame") from None
    public = _proven(certificate, keys.root, envelope.sender)
    try:
        public.verify(signature, text.encode(), _pss(), _sha256())
    except InvalidSignature:
        raise EnvelopeError(f"the signature is not that of {envelope.sender}") from None
    if hashlib.sha256(sent).hexdigest() != checksum:
        raise EnvelopeError("the message was damaged on its way: its checksum does not fit")
    if envelope.to != keys.name:
        raise EnvelopeError(f"addressed to {envelope.to}, not to {keys.name}")
    if wrapped:
        try:
            once = keys.private.decrypt(wrapped, _oaep())
            body = AESGCM(once).decrypt(_NONCE, sent, _bound(facts["envelope"]))
        except (ValueError, InvalidTag):
            raise EnvelopeError("the message was not encrypted for this party") from None
    elif envelope.kind not in OPEN:
        raise EnvelopeError("the message is not encrypted: refused, whoever sent it")
    else:
        body = bytes(sent)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Opened(envelope, body, certificate, digest)


def signed_digest(frame: bytes) -> str:
    """What an answer to this frame, which `seal` made here, must refer to."""
    text: str = _split(frame, len(frame))[0]["signed"]
    return hashlib.sha256(text.encode()).hexdigest()


def _split(frame: bytes, max_body: int) -> tuple[dict[str, Any], memoryview]:
    """(header, view of the body); sizes are checked before anything is parsed."""
    if not isinstance(frame, bytes | bytearray | memoryview):
        raise EnvelopeError(f"a frame must be bytes, not {type(frame).__name__}")
    if len(frame) < 8 or bytes(frame[:4]) != MAGIC:
        raise EnvelopeError("not a frame of this version")
    length = int.from_bytes(frame[4:8], "big")
    if length > min(MAX_HEADER, len(frame) - 8):
        raise EnvelopeError("the header is longer than the frame or the limit")
    size = len(frame) - 8 - length
    if size > max_body:
        raise EnvelopeError(f"message of {size:,} bytes, over the limit of {max_body:,}")
    try:
        header = json.loads(bytes(frame[8 : 8 + length]).decode())
    except (ValueError, RecursionError):
        raise EnvelopeError("not a signed frame") from None
    if not isinstance(header, dict):
        raise EnvelopeError("not a signed frame")
    return header, memoryview(frame)[8 + length :]


def _proven(certificate: bytes, root: bytes, name: str) -> Any:
    """The public key of a certificate that the authority issued for `name` and that is valid
    today."""
    named, first, last = _issued(certificate, root)
    if named != name:
        raise EnvelopeError(f"the certificate of {named or 'nobody'} cannot sign for {name}")
    now = datetime.now(UTC)
    if not first <= now <= last:
        raise EnvelopeError(f"the certificate of {name} is not valid today ({now.date()})")
    return _public(certificate)


@lru_cache(maxsize=64)
def _issued(certificate: bytes, root: bytes) -> tuple[str, datetime, datetime]:
    """(common name, valid from, valid until) of a certificate issued by `root` itself."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        found = x509.load_pem_x509_certificate(certificate)
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(root))
        names = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except (ValueError, TypeError, InvalidSignature):
        raise EnvelopeError("the certificate is not of this project's authority") from None
    name = str(names[0].value) if len(names) == 1 else ""
    return name, found.not_valid_before_utc, found.not_valid_after_utc


@lru_cache(maxsize=64)
def _public(certificate: bytes) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise EnvelopeError("the certificate has no RSA key")
    return key


def _bound(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _pss() -> Any:
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.PSS(padding.MGF1(_sha256()), padding.PSS.DIGEST_LENGTH)


def _oaep() -> Any:
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.OAEP(padding.MGF1(_sha256()), _sha256(), None)
