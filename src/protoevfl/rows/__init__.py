"""Where a party's rows come from: a data set, a file or a frame, through one encoder, as a
`PartyTable`; ids, alignment and splits.

May import core and what stands beside it (errors, rules, progress). Open table.py first: it is what
everything ends in; then encoders.py. files.py reads files, ids.py and align.py find common rows,
sources.py has the data sets.
"""
