"""Whoever must not get in: each trial returns the words of the refusal, or "" when it was let
in."""

import contextlib
import json
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from protoevfl.deploy import kit as kits
from protoevfl.deploy import place, processes, supervise
from protoevfl.deploy.provision import Project, provision
from protoevfl.errors import UserError
from protoevfl.federation.engines import nvflare
from tests.faults.federation import Federation


def root_key(federation: Federation) -> Any:
    from cryptography.hazmat.primitives import serialization

    state = federation.folder / "authority" / federation.project.name / "state" / "cert.json"
    return serialization.load_pem_private_key(
        json.loads(state.read_text())["root_pri_key"].encode(), password=None
    )


@contextlib.contextmanager
def redirected(federation: Federation, name: str, port: int) -> Iterator[None]:
    """The party dials another port (a proxy); its kit is signed again."""
    folder = federation.folder / name
    path = folder / "startup" / "fed_client.json"
    before = path.read_text()
    path.write_text(before.replace(f"localhost:{federation.port}", f"localhost:{port}"))
    kits.sign(folder, root_key(federation))
    try:
        yield
    finally:
        path.write_text(before)
        kits.sign(folder, root_key(federation))


def _join(folder: Path, seconds: float = 25.0) -> str:
    """Start a kit that must not get in; what it was told."""
    opened = kits.open_kit(folder)
    try:
        processes.start(opened, wait_s=seconds)
    except UserError as error:
        return str(error)
    finally:
        processes.stop(opened, seconds=0.5)
    return ""


def _copy(federation: Federation, name: str) -> Path:
    folder = Path(tempfile.mkdtemp(dir=federation.folder)) / name
    shutil.copytree(
        federation.folder / name,
        folder,
        ignore=shutil.ignore_patterns("runs", "log", "place", "*.txt", "*.json*"),
    )
    for file in ("kit.json", "manifest.json"):
        shutil.copy(federation.folder / name / file, folder / file)
    for part in ("startup", "local"):
        shutil.rmtree(folder / part)
        shutil.copytree(federation.folder / name / part, folder / part)
    return folder


def plaintext(federation: Federation) -> str:
    """Plain HTTP to the hub's port."""
    with socket.create_connection(("localhost", federation.port), timeout=5) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wire.settimeout(5)
        try:
            answer = wire.recv(100)
        except OSError as error:
            return f"connection ended ({error})"
    return "" if b"200" in answer or b"101" in answer else f"no plain answer ({answer[:20]!r})"


def no_certificate(federation: Federation) -> str:
    """TLS without a client certificate."""
    import ssl

    context = ssl.create_default_context(
        cafile=str(federation.folder / "shop" / "startup" / "rootCA.pem")
    )
    try:
        raw = socket.create_connection(("localhost", federation.port), timeout=5)
        with raw, context.wrap_socket(raw, server_hostname="localhost") as wire:
            wire.sendall(b"GET / HTTP/1.1\r\n\r\n")
            wire.settimeout(5)
            return "" if wire.recv(10) else "connection closed"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def wrong_authority(federation: Federation) -> str:
    """A kit of another project's authority, same names, same hub address."""
    project = federation.project
    other = Project(
        project.name, project.active, project.host, project.port, project.hub_org, project.parties
    )
    folder = Path(tempfile.mkdtemp(dir=federation.folder))
    return _join(provision(other, folder)["shop"])


def expired(federation: Federation) -> str:
    """A certificate that ran out yesterday: refused by its own kit's check, and by the hub where
    that is left out."""
    processes.stop(federation.kit("shop"), seconds=0.5)
    place.move(federation.kit("hub"), "shop")  # else it is the copy that is refused
    folder = _copy(federation, "shop")
    _reissue(federation, folder, datetime.now(UTC) + timedelta(days=1))
    if refused := _join(folder, 60.0):
        raise AssertionError(
            "control: a certificate made the same way, valid until tomorrow, was refused: "
            f"{refused}"
        )
    _reissue(federation, folder, datetime.now(UTC) - timedelta(days=1))
    own = _join(folder)
    skipped = _join_unchecked(folder)
    place.move(federation.kit("hub"), "shop")
    return f"{own} | without that check: {skipped}" if "expired" in own and skipped else ""


def _reissue(federation: Federation, folder: Path, until: datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    old = x509.load_pem_x509_certificate((folder / "startup" / "client.crt").read_bytes())
    key = rsa.generate_private_key(65537, 2048)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(key.public_key())
    )
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
        until - timedelta(days=30)
    )
    builder = builder.not_valid_after(until)
    for extension in old.extensions:
        if not isinstance(extension.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
    )
    signed = builder.sign(root_key(federation), hashes.SHA256())
    (folder / "startup" / "client.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.TraditionalOpenSSL
    plain = key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    (folder / "startup" / "client.key").write_bytes(plain)
    kits.sign(folder, root_key(federation))


def _join_unchecked(folder: Path, seconds: float = 25.0) -> str:
    check = processes.kit.check
    processes.kit.check = lambda _: None  # type: ignore[assignment]
    try:
        return _join(folder, seconds)
    finally:
        processes.kit.check = check


def tampered_kit(federation: Federation) -> str:
    """A kit whose class list was widened after signing."""
    folder = _copy(federation, "shop")
    path = folder / "local" / "resources.json"
    path.write_text(path.read_text().replace("protoevfl.deploy.site.Site", "os.system"))
    return _join(folder)


def unlisted(federation: Federation) -> str:
    """A party with a good certificate that the hub no longer lists."""
    path = federation.folder / "hub" / "parties.json"
    before = path.read_text()
    processes.stop(federation.kit("tele"), seconds=0.5)
    path.write_text(json.dumps([n for n in federation.parties if n != "tele"]))
    try:
        return _join(federation.folder / "tele")
    finally:
        path.write_text(before)


def borrowed_name(federation: Federation) -> str:
    """shop's certificate, tele's name."""
    folder = _copy(federation, "shop")
    processes.stop(federation.kit("tele"), seconds=0.5)
    facts = json.loads((folder / "kit.json").read_text())
    (folder / "kit.json").write_text(json.dumps({**facts, "name": "tele"}))
    client = folder / "startup" / "fed_client.json"
    client.write_text(client.read_text().replace('"fqsn": "shop"', '"fqsn": "tele"'))
    kits.sign(folder, root_key(federation))
    return _join(folder)


def job_with_code(federation: Federation) -> str:
    """A job that brings Python code along."""
    federation.up()
    marker = federation.folder / "ran"
    code = f"from pathlib import Path\nPath({str(marker)!r}).touch()\nclass Evil:\n    pass\n"
    return _submit_strange(federation, marker, "evil.Evil", {}, {"evil.py": code})


def job_with_other_class(federation: Federation) -> str:
    """A job without code that names a class which is not on the list."""
    federation.up()
    marker = federation.folder / "ran2"
    refused = _submit_strange(
        federation, marker, "subprocess.Popen", {"args": ["touch", str(marker)]}, {}
    )
    named = "'subprocess.Popen'" in processes.logs(federation.kit("shop"), 400)
    listed = "not in allow_list" in processes.logs(federation.kit("shop"), 400)
    return f"{refused} (shop: Popen is not in allow_list)" if refused and named and listed else ""


def _submit_strange(
    federation: Federation, marker: Path, path: str, arguments: Any, code: dict[str, str]
) -> str:
    bank = federation.kit("bank")
    with (
        tempfile.TemporaryDirectory() as folder,
        nvflare.session(bank.identity.admin, bank.folder / "admin") as hub,
    ):
        job = Path(folder) / "strange"
        parties = list(federation.parties)
        nvflare.write_job(
            job,
            "strange",
            parties,
            ("protoevfl.deploy.site.Hub", {"active": "bank"}),
            (path, arguments),
        )
        for name, text in code.items():
            (job / "app" / "custom").mkdir(exist_ok=True)
            (job / "app" / "custom" / name).write_text(text)
        try:
            number = hub.submit(job)
        except UserError as error:
            return str(error)
        end = time.monotonic() + 60
        while not hub.state(number).startswith(supervise.FINAL) and time.monotonic() < end:
            time.sleep(1)
        state, detail = hub.state(number), "; ".join(hub.detail(number))
    if marker.exists() or "COMPLETED" in state or state == "RUNNING":
        return ""
    return f"{state}: {detail}"[:200]


def refused_by_policy(federation: Federation) -> str:
    """A job that tele's policy does not accept."""
    federation.up()
    path = federation.folder / "tele" / "policy.toml"
    before = path.read_text()
    path.write_text(before.replace("max_rounds = 200", "max_rounds = 5"))
    try:
        federation.submit(federation.spec(f"policy-{int(time.time())}"), lambda _: None).done(120)
    except UserError as error:
        return str(error) if "party tele refused" in str(error) else ""
    finally:
        path.write_text(before)
    return ""


def oversized(federation: Federation) -> str:
    """Answers of 100 kB where 10 kB were agreed on."""
    federation.up()
    spec = federation.spec(
        f"big-{int(time.time())}", settings={"rounds": 2, "rows": 1000}, max_bytes=10_000
    )
    try:
        federation.submit(spec, lambda _: None).done(150)
    except UserError as error:
        return str(error) if "over the limit of 10,000" in str(error) else ""
    return ""


TRIALS: dict[str, Callable[[Federation], str]] = {
    "plain text": plaintext,
    "TLS without a certificate": no_certificate,
    "wrong authority": wrong_authority,
    "expired certificate": expired,
    "kit changed after signing": tampered_kit,
    "party not on the list": unlisted,
    "another party's name": borrowed_name,
    "job with code": job_with_code,
    "job with a class not on the list": job_with_other_class,
    "job refused by a party's policy": refused_by_policy,
    "answer larger than agreed": oversized,
}
