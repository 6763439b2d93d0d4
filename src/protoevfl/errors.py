"""Errors a user can mend: one clear line that says what to do; the command line turns them into
exit code 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input at the border; the message says what is wrong and what to do."""


class WrongInputError(UserError, ValueError):
    """The same where scikit-learn's tools look for a ValueError."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the one known name that is near, else all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
