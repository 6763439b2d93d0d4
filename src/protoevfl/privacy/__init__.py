"""Privacy: what an attacker can infer (attacks/), what holds it back (defences/), what it costs
(ledger.py).

This part of the package sees `core` and `messages` only: attacks work on recorded messages,
defences on messages about to leave. docs/privacy.md says it in words.
"""
