"""Between companies: kits, processes, job specifications, party policies, audit logs, checkpoints
and resume. Nothing here computes what a method computes: a job runs the same federation as one
process does, its parties and its label owner each in a process of their own.

May import what trains and keeps a run (pipeline, artifacts, federation and below). Open site_job.py
first: it is what runs at a company when a job comes; kit.py and policy.py are what a company keeps.
"""
