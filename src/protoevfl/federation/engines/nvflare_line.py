"""A standing line between the main processes of two parties, over the hub, without a job.

A job of NVFlare takes seconds to start and dies with any of its processes; a service cannot. The
main process of a party stays connected to the hub, and NVFlare connects it again by itself when
either of the two was restarted. `Line` is a component of a party's kit: when the party is connected it
calls the function named in the (signed) kit with a way to ask other parties, and every frame that
arrives goes to the function that it returned. Frames are sealed end to end (deploy/seal.py); the line
only carries them.
"""

import importlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protoevfl.federation.engines.nvflare import CallError

CHANNEL, TOPIC = "protoevfl", "frame"
WHOLE = 1 << 20  # bytes: a frame up to this size travels as one message, a larger one in parts
MOST_AT_ONCE = 64  # frames that are being answered; NVFlare has 100 threads for all that arrives
Ask = Callable[[str, bytes, float], bytes]  # (party, frame, seconds) -> frame; raises CallError
Answer = Callable[[str, bytes], bytes]  # (party as the hub says, frame) -> frame


def __getattr__(name: str) -> Any:
    """`Line` is made on first use, because its base class is NVFlare's."""
    if name == "Line":
        globals()[name] = _line()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _line() -> type:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_component import FLComponent
    from nvflare.apis.fl_constant import FLContextKey

    class Line(FLComponent):  # type: ignore[misc]
        """In a party's main process: opens the line when the party is connected to the hub."""

        def __init__(self, opens: str) -> None:
            """opens: module:function(kit folder, ask) -> answer."""
            super().__init__()
            self.opens = opens

        def handle_event(self, event_type: str, fl_ctx: Any) -> None:
            # the earliest moment: what answers loads while the party joins
            if event_type != EventType.SYSTEM_BOOTSTRAP:
                return
            module, function = self.opens.split(":")
            root = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_root_dir())
            cell = fl_ctx.get_engine().get_cell()
            answer: Answer = getattr(importlib.import_module(module), function)(root, asking(cell))
            cell.register_request_cb(channel=CHANNEL, topic=TOPIC, cb=answering(answer))

    return Line


def asking(cell: Any) -> Ask:
    """Sends a frame to the main process of another party and waits for its answer.

    One message and its answer wake the waiting thread directly. A stream of parts passes several
    pools of threads at either end, and its answer leaves a thread behind for 65 s.
    """
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.cellnet.utils import new_cell_message

    def ask(party: str, frame: bytes, seconds: float) -> bytes:
        way = cell.core_cell if len(frame) <= WHOLE else cell
        reply = way.send_request(
            channel=CHANNEL,
            topic=TOPIC,
            target=party,
            request=new_cell_message({}, frame),
            timeout=seconds,
            optional=True,
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        if code != ReturnCode.OK or not isinstance(reply.payload, bytes | bytearray | memoryview):
            raise CallError(f"no answer ({code})")
        return bytes(reply.payload)

    return ask


def answering(answer: Answer) -> Callable[[Any], Any]:
    """What NVFlare calls with a message of another party."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
    from nvflare.fuel.f3.cellnet.utils import make_reply

    free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def answered(request: Any) -> Any:
        origin = str(request.get_header(MessageHeaderKey.ORIGIN, ""))
        if not isinstance(request.payload, bytes | bytearray | memoryview):
            return make_reply(ReturnCode.INVALID_REQUEST)
        if not free.acquire(blocking=False):
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        try:
            return make_reply(ReturnCode.OK, body=answer(origin, bytes(request.payload)))
        except CallError:
            return make_reply(ReturnCode.PROCESS_EXCEPTION)
        finally:
            free.release()

    return answered
