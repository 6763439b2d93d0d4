"""The run directory, written and read in one place: what is kept of the label owner and of each
party.

May import everything below the pipeline. Open run_dir.py first.
"""
