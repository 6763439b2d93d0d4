"""What can be set: protoevfl.toml, presets, and the choice of a method with its defences.

May import rows, privacy and methods. Open config.py first.
"""
