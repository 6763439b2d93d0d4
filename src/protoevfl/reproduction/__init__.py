"""The paper's experiments: tables and figures as declarative constants, what fills their records,
and their pages.

May import everything but the command line, which alone imports it. Open catalogue.py first, then
spec.py (what an experiment is), execute.py (running fills records), measure.py and pages/ (which
only read records).
"""
