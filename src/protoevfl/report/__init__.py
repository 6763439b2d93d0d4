"""Pages about one run.

May import artifacts. Open run_record.py first.
"""
