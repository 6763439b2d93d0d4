"""All that touches NVFlare: the calls between job processes, kits, job folders and sessions with
the hub.

The hub (NVFlare's server) relays; it runs no method and sees no message: every call between two
companies is made with `secure=True`, that is encrypted for the receiver's certificate, end to end.
The active party is a site like the others; the hub's part of a job only tells it to begin. Nothing
else in this package imports nvflare.
"""

import contextlib
import io
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from protoevfl.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
HUB = "server"  # the hub's name in every NVFlare job
RUNTIME = (
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
)
SYNC_S = 300  # for every party's job process to load
_SWITCHES = threading.RLock()
LONGEST_S = 30 * 24 * 3600.0  # one job


class CallError(Exception):
    """A call to another party failed; the text says how."""


class UnreachableError(UserError):
    """The hub does not answer now; it may later."""


# ---------------------------------------------------------------- inside a job


def publish(function: F) -> F:
    """Marks a method that other sites of the job may call (no effect where nvflare is not
    installed)."""
    return _marked(function, "publish")


def main(function: F) -> F:
    """Marks the one method the hub runs."""
    return _marked(function, "main")


def _marked(function: F, mark: str) -> F:
    try:
        from nvflare.collab import collab
    except ImportError:
        return function
    return getattr(collab, mark)(function)  # type: ignore[no-any-return]


def caller() -> str:
    """Name of the calling site, as its certificate says."""
    from nvflare.collab import collab

    return str(collab.caller)


def kit_folder() -> Path:
    """The kit this job process belongs to."""
    from nvflare.collab import collab

    return Path(collab.fl_ctx.get_workspace().get_root_dir())


def job_id() -> str:
    """NVFlare's number of the job this process works for."""
    from nvflare.collab import collab

    return str(collab.fl_ctx.get_job_id())


def without_tensors() -> None:
    """In a process that passes no tensors: NVFlare does not load torch for them."""
    sys.modules.setdefault("nvflare.app_opt.pt.decomposers", None)  # type: ignore[arg-type]


def calls(method: str) -> dict[str, Callable[..., Any]]:
    """{site: function(seconds, *arguments)} for a published method of every site; raises
    CallError."""
    from nvflare.collab import collab

    return {site.name: _call(site, method) for site in collab.clients}


def aborted(error: Exception) -> bool:
    """Whether NVFlare is taking this attempt at a job down, because a process of it died."""
    from nvflare.collab.api.exceptions import RunAborted

    return isinstance(error, RunAborted)


def _call(site: Any, method: str) -> Callable[..., Any]:
    from nvflare.collab.api.exceptions import CollabCallError

    def ask(seconds: float, *arguments: Any) -> Any:
        try:
            return getattr(site(timeout=float(seconds), secure=True), method)(*arguments)
        except CollabCallError as error:
            raise CallError(" ".join(str(error.cause).split())[:300]) from None

    return ask


# ---------------------------------------------------------------- jobs


def write_job(
    folder: Path, name: str, sites: Sequence[str], hub: tuple[str, Any], site: tuple[str, Any]
) -> None:
    """A job that carries two class names and their plain arguments, and no code."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"app": [HUB, *sites]},
    }
    controller = {"server_obj_id": "hub", "sync_task_timeout": SYNC_S, "max_call_threads": 8}
    server = {
        "format_version": 2,
        "server": {"task_request_interval": 0.05, "heart_beat_timeout": 600},
        "workflows": [{"id": "controller", "path": RUNTIME[0], "args": controller}],
        "components": [{"id": "hub", "path": hub[0], "args": hub[1]}],
    }
    executor = {
        "id": "executor",
        "path": RUNTIME[1],
        "args": {"client_obj_id": "site", "max_call_threads": 8},
    }
    client = {"format_version": 2, "executors": [{"tasks": ["*"], "executor": executor}],
              "components": [{"id": "site", "path": site[0], "args": site[1]}]}  # fmt: skip
    for path, facts in ((folder / "meta.json", meta), (config / "config_fed_server.json", server),
                        (config / "config_fed_client.json", client)):  # fmt: skip
        path.write_text(json.dumps(facts, indent=1))


class Session:
    """A session with the hub under an administrator's certificate."""

    def __init__(self, user: str, kit: Path, seconds: float = 15.0) -> None:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        try:
            with _quiet():
                self._session = new_secure_session(
                    user, str(kit), timeout=seconds, auto_login_max_tries=3
                )
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if "registration" in text or "uthenticat" in text:
                raise UserError(
                    f"the hub refused this administrator's certificate ({text})"
                ) from None
            raise UnreachableError(
                f"cannot reach the hub ({text}); is it started, and is its port open from here?"
            ) from None

    def submit(self, folder: Path) -> str:
        return str(self._do(self._session.submit_job, str(folder)))

    def state(self, job: str) -> str:
        """SUBMITTED, RUNNING, FINISHED:COMPLETED, FINISHED:..."""
        return str(self._do(self._session.get_job_meta, job).get("status"))

    def detail(self, job: str) -> list[str]:
        """What happened at each site when the job was sent there."""
        return [
            str(line)
            for line in self._do(self._session.get_job_meta, job).get("job_deploy_detail") or []
        ]

    def seen(self) -> dict[str, float]:
        """When the hub last heard of each site (seconds since 1970)."""
        info = self._do(self._session.get_system_info)
        return {str(client.name): float(client.last_connect_time) for client in info.client_info}

    def working(self, job: str) -> dict[str, bool | None]:
        """Does each site have a process for the job? None where it does not answer, no entry if it
        is not there."""
        found: dict[str, bool | None] = {}
        try:
            rows = self._do(self._session.get_client_job_status) or []
        except UserError as error:
            if "no clients available" not in str(error):
                raise
            rows = []  # the hub was just started
        for row in rows:
            name = str(row["client_name"])
            silent = row.get("status") in ("no_reply", "error")
            found[name] = None if silent else bool(found.get(name)) or row.get("job_id") == job
        return found

    def jobs(self) -> dict[str, str]:
        """{job: state} of everything the hub remembers."""
        return {str(j["job_id"]): str(j.get("status")) for j in self._do(self._session.list_jobs)}

    def abort(self, job: str) -> None:
        with contextlib.suppress(UserError):
            self._do(self._session.abort_job, job)

    def close(self) -> None:
        with contextlib.suppress(Exception), _quiet():
            self._session.close()

    def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with _quiet():
                return function(*arguments)
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if type(error).__name__ in (
                "NoConnection",
                "SessionClosed",
                "SessionExpired",
                "NoReply",
            ):
                raise UnreachableError(f"the hub does not answer: {text}") from None
            if "StorageException" in text:
                raise UserError(
                    "the hub cannot store the job: is its disk full or read-only? Its log says more"
                ) from None
            raise UserError(f"the hub said: {text}") from None


@contextlib.contextmanager
def session(user: str, kit: Path, seconds: float = 15.0) -> Iterator[Session]:
    """`Session`, closed at the end."""
    opened = Session(user, kit, seconds)
    try:
        yield opened
    finally:
        opened.close()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without NVFlare's prints and tracebacks. Both switches are the whole process's: one thread at
    a time."""
    with _SWITCHES:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            logging.disable(before)


# ---------------------------------------------------------------- kits


def make_kits(
    folder: Path,
    name: str,
    hub: Mapping[str, Any],
    sites: Mapping[str, str],
    admins: Mapping[str, str],
    root_days: int,
) -> dict[str, Path]:
    """Certificates and configuration of every participant: {name: folder}. The root key stays in
    `folder`/NAME/state.

    `sites` and `admins` map names to organisations; running it again keeps what is there and adds
    what is new.
    """
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    people = [
        {"name": hub["name"], "type": "server", "org": hub["org"], "fed_learn_port": hub["port"]}
    ]
    people += [{"name": n, "type": "client", "org": org} for n, org in sites.items()]
    people += [
        {"name": n, "type": "admin", "org": org, "role": "lead"} for n, org in admins.items()
    ]
    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config"),
        CertBuilder(root_valid_days=root_days),
    ]
    try:
        with _quiet():
            project = prepare_project(
                {"api_version": 3, "name": name, "description": "", "participants": people}
            )
            context = Provisioner(str(folder), builders).provision(project)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"cannot make the kits: {error}") from None
    if context.get(CtxKey.BUILD_ERROR):
        raise UserError(
            f"cannot make the kits: {'; '.join(map(str, context.get(CtxKey.ERRORS, [])))}"
        )
    made = Path(context[CtxKey.CURRENT_PROD_DIR])
    return {entry.name: entry for entry in made.iterdir() if entry.is_dir()}


def command(role: str, kit: Path, name: str, org: str) -> list[str]:
    """Arguments (after the interpreter) that start a hub or a party of a kit in the foreground."""
    kind = ("server", "server_train") if role == "hub" else ("client", "client_train")
    who = [] if role == "hub" else [f"uid={name}"]
    settings = ["secure_train=true", *who, f"org={org}", "config_folder=config"]
    module = f"nvflare.private.fed.app.{kind[0]}.{kind[1]}"
    return [
        "-u",
        "-m",
        module,
        "-m",
        os.fspath(kit),
        "-s",
        f"fed_{kind[0]}.json",
        "--set",
        *settings,
    ]


def __getattr__(name: str) -> Any:
    """`PartyList` and `Place` under the names that signed kits have for them."""
    from protoevfl.federation.engines import nvflare_place

    if name in ("PartyList", "Place"):
        return getattr(nvflare_place, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
