"""The HTTP part of the prediction service. What is refused is refused before the body is parsed where
that is possible, in one line, and nothing goes to the other parties."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protoevfl import __version__
from protoevfl.deploy.standing_lead import OverLimitError
from protoevfl.errors import UserError
from protoevfl.serve.api_keys import Callers, Entry, KeyRefusedError, TooManyError
from protoevfl.serve.metrics import Metrics
from protoevfl.serve.service import Answer, Row, Service, UnknownCustomerError

if TYPE_CHECKING:
    from fastapi import FastAPI

MOST_BYTES = 1 << 20  # of a request
MOST_ROWS = 1_000  # of a request
MOST_THROWN_AWAY = 64 << 20  # bytes of a request that is too large
OPEN_PATHS = ("/health", "/docs", "/openapi.json")
Scalar = str | int | float | bool | None


class OneRow(BaseModel):
    """One row: a customer by id, or columns of the active party, or both."""

    model_config = ConfigDict(extra="forbid")
    id: str | int | list[str | int] | None = None
    columns: dict[str, Scalar] | None = Field(None, max_length=10_000)

    @model_validator(mode="after")
    def _something(self) -> "OneRow":
        if self.id is None and self.columns is None:
            raise ValueError("a row has an id, columns, or both")
        return self


class Question(BaseModel):
    """One row, or several."""

    model_config = ConfigDict(extra="forbid")
    id: str | int | list[str | int] | None = None
    columns: dict[str, Scalar] | None = None
    rows: Annotated[list[OneRow], Field(max_length=MOST_ROWS)] | None = None
    run: str | None = Field(None, max_length=63, description="left out: the current one")
    deadline_ms: int | None = Field(None, ge=1, le=60_000)

    @model_validator(mode="after")
    def _one_or_many(self) -> "Question":
        single = self.id is not None or self.columns is not None
        if single == (self.rows is not None):
            raise ValueError("give either one row (id, columns) or a list of rows")
        return self

    def to_predict(self) -> list[Row]:
        if self.rows is not None:
            return [Row(row.id, row.columns) for row in self.rows]
        return [Row(self.id, self.columns)]


class Predicted(BaseModel):
    """The prediction of one row."""

    model_config = ConfigDict(populate_by_name=True)
    id: Any = None
    class_: str = Field(alias="class")
    probabilities: dict[str, float]
    parties: list[str] = Field(description="took part")
    absent: dict[str, str] = Field(description="did not take part, and why")
    degraded: bool = Field(description="a party that shares this customer did not answer")


class Predictions(BaseModel):
    """The answer to a question."""

    model: dict[str, str] = Field(description="run and digest")
    predictions: list[Predicted]


@dataclass
class Settings:
    """How the service answers."""

    deadline_s: float = 1.0
    over_limit: str = "refuse"  # or degrade: go on without a party whose day is used up
    most_bytes: int = MOST_BYTES
    metrics: Metrics = field(default_factory=Metrics)


NEVER = ("does not have this customer", "the row has no id")  # reasons that are no failure


class BodyError(Exception):
    """The request is too large."""


# the HTTP status of what is refused, the first that fits: before the body is parsed, and after
AT_THE_BORDER = ((KeyRefusedError, 401), (TooManyError, 429), (BodyError, 413), (UserError, 503))
WHILE_PREDICTING = (
    (UnknownCustomerError, 404),
    (OverLimitError, 429),
    (TooManyError, 429),
    (UserError, 400),
)


def failed(answer: Answer) -> list[str]:
    """The parties that share this customer and did not answer."""
    return [name for name, why in answer.absent.items() if why not in NEVER]


def predicted(answer: Answer) -> Predicted:
    return Predicted(
        **{"class": answer.choice},
        id=answer.id,
        probabilities=answer.probabilities,
        parties=list(answer.parties),
        absent=answer.absent,
        degraded=bool(failed(answer)),
    )


def make_app(service: Service, callers: Callers, settings: Settings | None = None) -> "FastAPI":
    """The application (ASGI) around a service."""
    from fastapi import FastAPI

    how = settings or Settings()
    app = FastAPI(title="protoevfl predictions", version=__version__, redoc_url=None)
    _guard(app, callers, how)
    _refuse_in_one_line(app)
    _predict(app, service, callers, how)
    _inform(app, service, how.metrics)
    return app


def _refusal(status: int, text: str) -> Any:
    from fastapi.responses import JSONResponse

    return JSONResponse({"error": " ".join(text.split())[:500]}, status)


def _status(error: Exception, table: Iterable[tuple[type[Exception], int]]) -> int:
    return next(status for kind, status in table if isinstance(error, kind))


def _guard(app: "FastAPI", callers: Callers, how: Settings) -> None:
    """Key, then the limit of requests, then size: before anything is parsed."""
    from fastapi import Request

    @app.middleware("http")
    async def border(request: Request, go_on: Callable[[Request], Awaitable[Any]]) -> Any:
        if request.url.path in OPEN_PATHS:
            return await go_on(request)
        try:
            request.state.caller = callers.known(_key(request.headers))
            callers.count_request(request.state.caller)
            await _small_body(request, how.most_bytes)
            response = await go_on(request)
        except (UserError, BodyError) as error:
            response = _refusal(_status(error, AT_THE_BORDER), str(error))
        how.metrics.request(response.status_code)
        return response


def _refuse_in_one_line(app: "FastAPI") -> None:
    from fastapi import Request
    from fastapi.exceptions import RequestValidationError

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Any:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first.get("loc", ()) if part != "body")
        return _refusal(422, f"{where + ': ' if where else ''}{first.get('msg', 'malformed')}")

    @app.exception_handler(UserError)
    async def wrong(_: Request, error: UserError) -> Any:
        return _refusal(_status(error, WHILE_PREDICTING), str(error))


def _predict(app: "FastAPI", service: Service, callers: Callers, how: Settings) -> None:
    from fastapi import Request
    from fastapi.responses import JSONResponse
    from starlette.concurrency import run_in_threadpool

    @app.post("/predict", response_model=Predictions)
    async def predict(question: Question, request: Request) -> Any:
        """Class and probabilities of one row or several."""
        caller: Entry = request.state.caller
        rows = question.to_predict()
        callers.count_rows(caller, len(rows))
        seconds = (question.deadline_ms or how.deadline_s * 1000) / 1000
        start = time.perf_counter()
        model = service.model(question.run)
        answers = await run_in_threadpool(model.predict, rows, seconds, how.over_limit)
        predictions = [predicted(answer) for answer in answers]
        lacking = [failed(answer) for answer in answers]
        how.metrics.answered(time.perf_counter() - start, len(rows), lacking)
        body = {
            "model": model.version,
            "predictions": [p.model_dump(by_alias=True) for p in predictions],
        }
        return JSONResponse(body)


def _inform(app: "FastAPI", service: Service, metrics: Metrics) -> None:
    from fastapi.responses import JSONResponse, PlainTextResponse

    @app.get("/health")
    async def health() -> Any:
        """Whether predictions can be made; `degraded` where a party is away."""
        model = service.models.get(service.current)
        if model is None:
            return JSONResponse({"status": "starting"}, 503)
        away = not all(facts["up"] for facts in model.lead.status().values())
        return {"status": "degraded" if away else "ok", "model": model.version}

    @app.get("/parties")
    async def parties() -> Any:
        """What is known of the other parties."""
        return service.model().lead.status()

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Any:
        """Counts in the text format of Prometheus."""
        return PlainTextResponse(metrics.text(service.model().lead.status()))


def _key(headers: Any) -> str:
    """`Authorization: Bearer KEY` or `X-API-Key: KEY`."""
    bearer = str(headers.get("authorization", ""))
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip()
    return str(headers.get("x-api-key", ""))


async def _small_body(request: Any, most: int) -> None:
    """Reads the body, and keeps no more of it than allowed. What is too large is read to its end, up
    to a limit, and thrown away: a caller that is still sending would not hear the answer."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            parts.append(part)
        elif size > MOST_THROWN_AWAY:
            break
    if size > most:
        raise BodyError(f"the request is larger than {most:,} bytes")
    request._body = b"".join(parts)
