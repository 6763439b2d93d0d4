"""Your own files: check, prepare, train, keep a run directory, predict, measure what each party is
worth.

May import methods, settings and artifacts. Open simulate.py first (what `protoevfl train` does),
then prepare.py, which runs between companies as well.
"""
