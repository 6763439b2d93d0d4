"""Privacy: what an attacker can infer (attacks/), what holds it back (defences/), what it costs
(ledger.py).

Sees `core` and `messages` only: attacks work on recorded messages, defences on messages about to
leave. Open policy.py first: it is what stands at the border. docs/privacy.md says it in words.
"""
