"""How messages get from the label owner to the parties and back: party by party in this process,
parties of equal shape as one batched model, or between companies over NVFlare. All give the same
numbers.

May import parties and messages, never a method. Open in_process.py first, it is the shortest.
"""
