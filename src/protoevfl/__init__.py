"""Vertical federated learning when few rows are shared.

from protoevfl import ProtoEVFLClassifier
model = ProtoEVFLClassifier().fit({"bank": bank, "insurer": insurer}, labels)
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Parties", "ProtoEVFLClassifier", "UserError", "__version__"]

if TYPE_CHECKING:
    from protoevfl.errors import UserError
    from protoevfl.estimator import Parties, ProtoEVFLClassifier

_WHERE = {"ProtoEVFLClassifier": "estimator", "Parties": "estimator", "UserError": "errors"}


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: `import protoevfl` loads neither torch nor
    scikit-learn."""
    if name not in _WHERE:
        raise AttributeError(f"module 'protoevfl' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"protoevfl.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
