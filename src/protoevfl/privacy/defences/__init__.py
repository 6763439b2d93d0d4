"""One defence per file; `privacy/policy.py` puts them together and applies them where data leaves."""
