"""The prediction service under load: a hub and three parties as real processes on this machine.

    python benchmarks/serve.py --seconds 600        the figures of docs/serving.md
    python benchmarks/serve.py --short              the same in some minutes, to see that it works

Sets the companies up, trains, predicts a file, serves; then one JSON line per case: single rows,
batches, a partner killed and restarted, the hub too, rows by file against rows by service, what must be
refused. Load comes from locust, which is installed into out/load-venv the first time.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.faults.companies import NAMES, probabilities, write_files  # noqa: E402
from tests.faults.federation import Federation, free_port, kill  # noqa: E402

from machine import describe  # noqa: E402
from protoevfl.deploy import os_process, processes  # noqa: E402
from protoevfl.deploy.job_file import complete  # noqa: E402
from protoevfl.deploy.spec import JobSpec  # noqa: E402
from protoevfl.serve import api_keys  # noqa: E402
from protoevfl.serve.client import Client, ServiceError  # noqa: E402

OUT = ROOT / "out"
PEOPLE, NEW = 2000, 1600
MANY = 1_000_000_000  # no limit stands in the way of the load


def locust() -> Path:
    """The program, in an environment of its own."""
    folder = OUT / "load-venv"
    if not (folder / "bin" / "locust").exists():
        note("installing locust into out/load-venv")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pins = ROOT / "benchmarks" / "requirements-load.txt"
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", pins], check=True)
    return folder / "bin" / "locust"


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass
class Bench:
    """The companies and the service."""

    folder: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.federation = Federation(self.folder)
        self.port = free_port()
        self.service: subprocess.Popen[bytes] | None = None

    def say(self, case: str, **facts: Any) -> None:
        self.lines.append({"case": case, **facts})
        print(json.dumps({"case": case, **facts}), flush=True)

    # ------------------------------------------------------------ set up

    def set_up(self) -> None:
        write_files(self.folder, people=PEOPLE, new=NEW)
        for name in NAMES:
            self.change_policy(
                name,
                {
                    "allow = false": "allow = true",
                    "max_sends = 200 ": f"max_sends = {MANY} ",
                    "requests_per_day = 10_000": f"requests_per_day = {MANY}",
                    "rows_per_day = 100_000": f"rows_per_day = {MANY}",
                },
            )
        note("starting hub and parties")
        self.federation.up()
        spec = complete(JobSpec("credit", NAMES, rounds=20, deadline_s=120.0, wait_s=300.0))
        note("training")
        start = time.time()
        self.federation.submit(spec, note).done(900)
        note(f"trained after {time.time() - start:.0f} s; predicting a file")
        later = JobSpec(
            "credit-predict", NAMES, task="predict", base="credit", rounds=1, deadline_s=120.0
        )
        start = time.time()
        self.federation.submit(complete(later), note).done(600)
        self.say("predict by file", seconds=round(time.time() - start, 1))
        self.key = api_keys.add(self.bank / api_keys.FILE, "load", MANY, MANY)
        self.certificate = self.folder / "service.crt"
        certificate(self.certificate, self.folder / "service.key")
        self.client = Client(f"https://localhost:{self.port}", self.key, str(self.certificate))
        self.ids = list(probabilities(self.by_file))
        (self.folder / "ids.txt").write_text("\n".join(self.ids))

    @property
    def bank(self) -> Path:
        return self.folder / "bank"

    @property
    def by_file(self) -> Path:
        return self.bank / "runs" / "credit-predict" / "predictions.csv"

    def change_policy(self, name: str, changes: dict[str, str]) -> None:
        path = self.folder / name / "policy.toml"
        text = path.read_text()
        for before, after in changes.items():
            assert before in text, before
            text = text.replace(before, after)
        path.write_text(text)

    def start_service(self) -> None:
        command = [str(Path(sys.executable).parent / "protoevfl"), "deploy", "serve", "credit"]
        command += ["--kit", str(self.bank), "--port", str(self.port)]
        command += ["--certificate", str(self.certificate)]
        command += ["--key", str(self.folder / "service.key")]
        log = (self.folder / "service.log").open("ab")
        start = time.time()
        self.service = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        self.until(self.full, 120)
        self.say("service opened", seconds=round(time.time() - start, 1))

    def until(self, ready: Callable[[], bool], seconds: float) -> float:
        """Seconds until something holds."""
        start = time.time()
        while not ready():
            if time.time() - start > seconds:
                raise TimeoutError(f"not within {seconds:g} s; see {self.folder}/service.log")
            time.sleep(0.1)
        return time.time() - start

    def full(self) -> bool:
        """Whether a customer of all parties is predicted from all of them."""
        shared = next(i for i, (_, p) in probabilities(self.by_file).items() if p.count("+") == 2)
        try:
            return len(self.client.predict(id=shared)["parties"]) == len(NAMES)
        except ServiceError:
            return False

    def tear_down(self) -> None:
        if self.service is not None:
            self.service.terminate()
            self.service.wait(30)
        self.federation.down()

    # ------------------------------------------------------------ load

    def pids(self) -> dict[str, int]:
        pid_of = {"service": self.service.pid if self.service else 0}
        for name in self.federation.everyone:
            main = self.federation.main(name)
            for p in os_process.of_folder(self.federation.kit(name).folder):
                if self.service is None or p.pid != self.service.pid:
                    kind = " waiting" if os_process.waits(p) else " standing"
                    pid_of[name if p.pid == main else name + kind] = p.pid
        return {name: pid for name, pid in pid_of.items() if pid}

    def load(
        self, seconds: float, users: int, rate: float, batch: int, together: bool = False
    ) -> dict[str, Any]:
        """What locust measured, with processor time and memory of every process."""
        before = {name: usage(pid) for name, pid in self.pids().items()}
        quarters: list[dict[str, float]] = []

        def look() -> None:
            for _ in range(3):
                time.sleep(seconds / 4)
                quarters.append({name: usage(pid)[1] for name, pid in self.pids().items()})

        threading.Thread(target=look, daemon=True).start()
        facts = self.locust(seconds, users, rate, batch, together)
        after = {name: usage(pid) for name, pid in self.pids().items()}
        requests = max(1, facts["requests"])
        facts["cpu_ms_per_request"] = {
            n: round(1000 * (after[n][0] - before[n][0]) / requests, 2)
            for n in after
            if n in before
        }
        facts["memory_mb_by_quarter"] = {
            n: [*(round(q.get(n, 0)) for q in quarters), round(after[n][1])] for n in after
        }
        return facts

    def locust(
        self, seconds: float, users: int, rate: float, batch: int, together: bool = False
    ) -> dict[str, Any]:
        out = self.folder / "load.json"
        out.unlink(missing_ok=True)
        settings = {
            "LOAD_IDS": self.folder / "ids.txt",
            "LOAD_KEY": self.key,
            "LOAD_CERTIFICATE": self.certificate,
            "LOAD_BATCH": batch,
            "LOAD_RATE": rate,
            "LOAD_TOGETHER": int(together),
            "LOAD_OUT": out,
        }
        command = [locust(), "-f", ROOT / "benchmarks" / "serve_load.py", "--headless"]
        command += ["--host", f"https://localhost:{self.port}", "-u", str(users), "-r", str(users)]
        command += [
            "-t",
            f"{max(1, round(seconds))}s",
            "--only-summary",
            "--exit-code-on-error",
            "0",
        ]
        env = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        with (self.folder / "locust.log").open("ab") as log:
            subprocess.run(list(map(str, command)), env=env, stdout=log, stderr=log, check=True)
        return dict(json.loads(out.read_text()))

    def singles(self, seconds: float) -> None:
        self.say("single rows, 20 requests a second", **self.load(seconds, 10, 2.0, 1))
        together = self.load(min(60.0, seconds), 10, 2.0, 1, together=True)
        self.say("the same, ten callers at the same moment", **together)

    def batches(self, seconds: float) -> None:
        facts = self.load(seconds, 2, 0, 500)
        facts["rows_per_s"] = round(facts["rows"] / facts["seconds"])
        self.say("batches of 500", **facts)

    # ------------------------------------------------------------ faults

    def faults(self, times: int, apart: float) -> None:
        """A partner killed and restarted, then the hub, all under load."""
        loads: dict[str, Any] = {}
        seconds = (times + 1) * (apart + 25)
        loading = threading.Thread(target=lambda: loads.update(self.locust(seconds, 10, 2.0, 1)))
        loading.start()
        time.sleep(5)
        for name in ["shop"] * times + ["hub"]:
            main, workers = self.federation.main(name), self.federation.workers(name)
            kill(main, *workers)
            time.sleep(apart)
            start = time.time()
            processes.start(self.federation.kit(name), wait_s=90)
            joined = time.time() - start
            full = self.until(self.full, 120)
            self.say("back", killed=name, start_s=round(joined, 1), full_after_s=round(full, 1))
        loading.join()
        self.say("requests while killing", **loads)

    # ------------------------------------------------------------ the rest

    def same(self) -> None:
        """Every row of the file, one by one and in batches, against `deploy predict`."""
        wanted = probabilities(self.by_file)
        single = {i: self.client.predict(id=i) for i in self.ids[:100]}
        rows: list[dict[str, Any]] = []
        for start in range(0, len(self.ids), 500):
            part = self.ids[start : start + 500]
            rows += self.client.predict_many([{"id": i} for i in part], deadline_ms=10_000)
        served = {row["id"]: row for row in rows}
        self.say(
            "same rows by file and by service",
            rows=len(served),
            largest_difference=max(
                abs(served[i]["probabilities"]["yes"] - p) for i, (p, _) in wanted.items()
            ),
            largest_difference_single=max(
                abs(row["probabilities"]["yes"] - wanted[i][0]) for i, row in single.items()
            ),
            same_parties=all("+".join(served[i]["parties"]) == p for i, (_, p) in wanted.items()),
        )

    def refusals(self) -> None:
        """What must be refused, in one line, with nothing sent to the parties."""
        before = self.sent()
        stranger = Client(self.client.address, "load.guessed", str(self.certificate))
        nobody = Client(self.client.address, "", str(self.certificate))
        asks: dict[str, Callable[[], Any]] = {
            "stolen key, guessed secret": lambda: stranger.predict(id=self.ids[0]),
            "no key": lambda: nobody.predict(id=self.ids[0]),
            "malformed body": lambda: self.client.ask({"rows": "C1"}),
            "10 MB of JSON": lambda: self.client.ask({"id": "x" * 10_000_000}),
        }
        for name, ask in asks.items():
            self.refused(name, ask, before)
        limit = {f"rows_per_day = {MANY}": "rows_per_day = 1"}
        self.change_policy("shop", limit)
        ask_all = lambda: self.client.predict_many([{"id": i} for i in self.ids[:500]])  # noqa: E731
        self.until(lambda: self.rows_left("shop") == 0, 30)
        self.refused("over a party's daily limit", ask_all, self.sent())
        self.change_policy("shop", {after: before for before, after in limit.items()})

    def rows_left(self, name: str) -> int:
        import ssl
        import urllib.request

        context = ssl.create_default_context(cafile=str(self.certificate))
        headers = {"X-API-Key": self.key}
        request = urllib.request.Request(f"{self.client.address}/parties", headers=headers)
        with urllib.request.urlopen(request, context=context) as reply:
            return int(json.load(reply)[name]["rows_left"])

    def refused(self, name: str, ask: Callable[[], Any], before: dict[str, int]) -> None:
        try:
            ask()
            facts: dict[str, Any] = {"refused": False}
        except ServiceError as error:
            facts = {"refused": True, "status": error.status, "text": str(error)}
        self.say(f"refused: {name}", **facts, nothing_sent=self.sent() == before)

    def sent(self) -> dict[str, int]:
        """Bytes in each party's log of what left."""
        files = {n: self.folder / n / "ledger" / "bank" / "serving.log" for n in NAMES[1:]}
        return {n: path.stat().st_size if path.exists() else 0 for n, path in files.items()}


def usage(pid: int) -> tuple[float, float]:
    """(processor seconds, resident megabytes) of a process."""
    import psutil

    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss / 1e6
    except psutil.Error:
        return 0.0, 0.0


def certificate(path: Path, key_path: Path) -> None:
    """A certificate for localhost that signs itself."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    key_path.chmod(0o600)


@contextmanager
def running(folder: Path) -> Iterator[Bench]:
    bench = Bench(folder)
    try:
        bench.set_up()
        bench.start_service()
        yield bench
    finally:
        bench.tear_down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of single rows")
    parser.add_argument("--short", action="store_true", help="30 s, one kill")
    parser.add_argument("--out", type=Path, default=OUT / "serve.jsonl")
    arguments = parser.parse_args()
    seconds = 30.0 if arguments.short else arguments.seconds
    locust()
    folder = OUT / f"serve-{time.strftime('%H%M%S')}"
    with running(folder) as bench:
        bench.say("machine", **describe("cpu", 1))
        bench.same()
        bench.singles(seconds)
        bench.batches(min(60.0, seconds))
        bench.faults(1 if arguments.short else 5, 5.0)
        bench.refusals()
    arguments.out.write_text("".join(json.dumps(line) + "\n" for line in bench.lines))
    note(f"lines in {arguments.out}, files in {folder}")


if __name__ == "__main__":
    main()
