"""The command `protoevfl`, one module per group of commands.

May import everything; nothing imports it. Open main.py first.
"""
