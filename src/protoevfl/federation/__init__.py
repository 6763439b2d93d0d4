"""Parties, the label owner, the engines that carry messages between them, and the guards at the
border.

May import core, messages, rows and privacy, never a method. Open lockstep.py first.
"""
