"""The class with scikit-learn's habits. It may import everything but reports and the command line;
open `classifier.py` first."""

from protoevfl.estimator.classifier import ProtoEVFLClassifier
from protoevfl.rows.frames import Parties

__all__ = ["Parties", "ProtoEVFLClassifier"]
