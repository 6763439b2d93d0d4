"""The mathematics: pure functions on tensors, each tied to its equation, every one with the group
axis G.

May import torch and nothing of the package but its errors. Open transport.py first: it is the
paper's own cost; random.py says where every draw comes from.
"""
