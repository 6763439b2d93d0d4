"""Errors a user can mend: one clear line that says what to do; the command line turns them into
exit code 2."""

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """Bad input at the border; the message says what is wrong and what to do."""


class WrongInputError(UserError, ValueError):
    """The same where scikit-learn's tools look for a ValueError."""


class ColumnsError(UserError):
    """Several columns that cannot be used; the message is the first line and how many more."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        more = len(self.lines) - 1
        hint = f" (and {more} more columns: `protoevfl check` lists them)" if more else ""
        super().__init__(f"{self.lines[0]}{hint}")


def listed(names: Sequence[str], separator: str = ", ", most: int = 5) -> str:
    """The first of the names and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{separator.join(names[:most])}{more}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the one known name that is near, else all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
