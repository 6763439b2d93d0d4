"""Predictions over HTTP at the active party. Begin with `service.py`; `app.py` is the HTTP part,
`client.py` what a caller uses. May import deploy; nothing but the command imports it."""
