"""One file per method, and the table of them: name -> where its class lives. A new method adds its
line here (docs/extending.md).

May import federation, rows and core. Open ss_vfl.py first, which is a short one; proto_evfl.py is
the settings of the paper's method, answers.py its party, training.py and deciding.py its owner.
"""

from importlib import import_module

METHODS = {
    "local": "protoevfl.methods.local:Local",
    "vanilla": "protoevfl.methods.split:Vanilla",
    "ss_vfl_i": "protoevfl.methods.ss_vfl:SSVFLI",
    "ss_vfl_c": "protoevfl.methods.ss_vfl:SSVFLC",
    "fedhssl": "protoevfl.methods.fedhssl:FedHSSL",
    "one_shot": "protoevfl.methods.one_shot:OneShot",
    "fedcvt": "protoevfl.methods.fedcvt:FedCVT",
    "laser": "protoevfl.methods.laser:Laser",
    "upper_bound": "protoevfl.methods.upper_bound:UpperBound",
    "vertical_logistic": "protoevfl.methods.vertical_logistic:VerticalLogistic",
    "pooled_boosting": "protoevfl.methods.pooled_boosting:PooledBoosting",
    "proto_evfl": "protoevfl.methods.proto_evfl:ProtoEVFL",
}
# methods that learn from labels of rows that only the active party has, and those that use rows
# shared with some
EVERY_LABEL = ("local", "vanilla", "ss_vfl_c", "fedcvt", "laser", "proto_evfl")
EVERY_OVERLAP = ("laser", "proto_evfl")


def method_class(name: str) -> type:
    """The class of a method; import happens on first use."""
    from protoevfl.errors import UserError

    if name not in METHODS:
        raise UserError(f"unknown method '{name}'; there are {', '.join(METHODS)}")
    module, cls = METHODS[name].split(":")
    method: type = getattr(import_module(module), cls)
    return method
