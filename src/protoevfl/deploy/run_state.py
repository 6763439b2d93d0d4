"""What a kit knows of its runs, for `deploy status`: the active party has the whole picture, the
others their part."""

from protoevfl.deploy.kit import Kit
from protoevfl.deploy.supervise import read_status
from protoevfl.errors import UserError


def runs(kit: Kit) -> list[str]:
    """Names of the runs that left something here, the oldest first."""
    folder = kit.folder / "runs"
    folders = [entry for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
    return [entry.name for entry in sorted(folders, key=lambda entry: entry.stat().st_mtime)]


def describe(kit: Kit, run: str) -> str:
    """One line on a run; UserError names the runs there are when this is none of them."""
    if run not in runs(kit):
        there = ", ".join(runs(kit)) or "none yet"
        raise UserError(f"{kit.name} knows no run {run!r}; its runs: {there}")
    if kit.name == kit.identity.active:
        return _led(kit, run)
    from protoevfl.deploy.checkpoints import CheckpointStore

    latest = CheckpointStore(kit.run_folder(run) / "checkpoints").latest()
    return f"run {run}: " + (
        "asked, nothing answered yet" if latest is None else f"answered round {latest.round}"
    )


def _led(kit: Kit, run: str) -> str:
    facts = read_status(kit, run)
    phase = (
        f", {facts['phase']} {facts.get('step', 0)}/{facts.get('steps', 0)}"
        if facts.get("steps")
        else ""
    )
    away = f", away: {', '.join(facts['absent'])}" if facts.get("absent") else ""
    error = f": {facts['error']}" if facts.get("error") else ""
    state = facts.get("state", "submitted, not begun")
    return f"run {run}: {state}, round {facts.get('round', 0)}{phase if state == 'running' else ''}{away}{error}"
