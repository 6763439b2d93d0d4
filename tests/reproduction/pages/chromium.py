"""Headless Chromium for tests of the page; tests skip where there is none (Debian: apt-get install
chromium)."""

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
needs_chromium = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")

# put in front of everything else: what goes wrong is written where --dump-dom shows it
COLLECTOR = """<script>
(() => {
  const add = (text) => {
    const root = document.documentElement;
    root.setAttribute("data-errors", (root.getAttribute("data-errors") ?? "") + String(text) + ";");
  };
  window.addEventListener("error", (e) => add(e.message || "failed to load"), true);
  window.addEventListener("unhandledrejection", (e) => add(e.reason));
  window.addEventListener("securitypolicyviolation", (e) => add("policy: " + e.blockedURI));
  for (const kind of ["error", "warn"]) console[kind] = (...parts) => add(parts.join(" "));
  document.documentElement.setAttribute("data-collector", "on");
})();
</script>"""


def browse(profile: Path, *arguments: str) -> str:
    """Runs Chromium once with a fresh profile and returns what it printed."""
    assert BROWSER is not None
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={profile}",
        "--virtual-time-budget=3000",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def dom(page: Path, profile: Path, fragment: str = "") -> str:
    """The document after its scripts ran, with the collector in front."""
    watched = page.with_name("watched-" + page.name)
    watched.write_text(
        page.read_text(encoding="utf-8").replace("<head>", "<head>" + COLLECTOR, 1),
        encoding="utf-8",
    )
    return browse(profile, "--dump-dom", watched.as_uri() + fragment)


def errors(html: str) -> str | None:
    """What the collector wrote down."""
    root = html[html.index("<html") : html.index("<head")]
    assert 'data-collector="on"' in root
    return root if "data-errors=" in root else None


def screenshot(page: Path, profile: Path, target: Path, width: int, height: int) -> None:
    browse(profile, f"--screenshot={target}", f"--window-size={width},{height}", page.as_uri())
