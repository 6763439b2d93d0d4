"""Pages about one run.

May import the pipeline. Open run_page.py first.
"""
