"""Errors a user can mend: one clear line that says what to do; the command line turns them into exit code 2."""


class UserError(Exception):
    """Bad input at the border; the message says what is wrong and what to do."""
