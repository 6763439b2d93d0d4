"""Between companies: kits, processes, job specifications, party policies, audit logs, checkpoints
and resume."""
