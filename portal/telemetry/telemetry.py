"""Records what happens in the portal, as spans and numbers."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import Link, NoOpTracer, Span, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from manifests.json_value import Json
from portal.passthrough.clean_json import sendable
from portal.telemetry.instruments import ERROR, INSTRUMENTS, SECONDS_BOUNDARIES, Instrument, Operation
from upstreams.redaction import Redaction

MAX_SHOWN_CHARACTERS: Final = 10_000
"""Arguments and results are cut to this length, after they were masked."""

MAX_CONTEXT_CHARACTERS: Final = 512
"""A longer `traceparent` or `tracestate` of a client is ignored. W3C wants 512 to be passed on."""

Attributes: TypeAlias = Mapping[str, str | int]

Readings: TypeAlias = Callable[[], Iterable[tuple[float, Attributes]]]
"""Reads the values of a gauge or a total, in any thread."""

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()


class Observed:
    """One operation while it goes on."""

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = _sendable_values(attributes)

    def set(self, attributes: Attributes) -> None:
        """Add attributes that are known only now."""
        self.attributes |= _sendable_values(attributes)

    def fail(self, code: str) -> None:
        """It failed; `code` is one of few. There is no message, because messages quote what strangers sent."""
        self.set({ERROR: code})


class Telemetry:
    """Records numbers with a meter and spans with a tracer, if there is one; without a meter nothing.

    With `mask` spans have arguments and results, masked by it.
    """

    def __init__(
        self, tracer: Tracer | None = None, meter: Meter | None = None, mask: Redaction | None = None
    ) -> None:
        self.page: Callable[[], tuple[bytes, str]] | None = None
        """The numbers for Prometheus and their media type; None if nobody wants them. Blocks for milliseconds."""
        self._tracer = tracer or NoOpTracer()
        self._meter = meter
        self.mask = mask
        recorded = [each for each in INSTRUMENTS if each.kind in ("histogram", "counter")]
        self._recorders = {} if meter is None else {each: _recorder(meter, each) for each in recorded}

    @property
    def is_on(self) -> bool:
        return self._meter is not None

    def operation(
        self,
        operation: Operation,
        name: str,
        attributes: Attributes,
        *,
        parent: Context | None = None,
        link: str = "",
    ) -> AbstractContextManager[Observed]:
        """Record a span of this name, and its duration, until the context is left.

        It is a child of the current span, or of `parent`. `link` is the `traceparent` of another trace that it belongs
        to. An exception that leaves the context is recorded by its class alone.
        """
        observed = Observed(attributes)
        if not self.is_on:
            return nullcontext(observed)
        links = (
            [Link(get_current_span(client_context({"traceparent": link})).get_span_context())] if link else []
        )
        span = self._tracer.start_as_current_span(
            sendable(name),
            context=parent,
            kind=operation.kind,
            attributes=observed.attributes,
            links=links,
            # The SDK would write messages and tracebacks, which quote strangers and name paths.
            record_exception=False,
            set_status_on_exception=False,
        )
        return self._recorded(operation.duration, observed, span)

    @contextmanager
    def _recorded(
        self, duration: Instrument, observed: Observed, started: AbstractContextManager[Span]
    ) -> Iterator[Observed]:
        began = time.perf_counter()
        with started as span:
            try:
                yield observed
            except BaseException as error:
                if ERROR not in observed.attributes:
                    observed.fail(type(error).__name__ if isinstance(error, Exception) else "cancelled")
                raise
            finally:
                attributes = observed.attributes
                span.set_attributes(attributes)
                if ERROR in attributes:
                    span.set_status(StatusCode.ERROR)
                few = {key: attributes[key] for key in duration.attributes if key in attributes}
                self.record(duration, time.perf_counter() - began, few)

    def record(self, instrument: Instrument, amount: float, attributes: Attributes | None = None) -> None:
        """Record a value of a histogram, or add to a counter."""
        if self._meter is not None:
            self._recorders[instrument](amount, _sendable_values(attributes or {}))

    def observe(self, instrument: Instrument, read: Readings) -> None:
        """Read a gauge or a total whenever numbers are collected."""
        if self._meter is None:
            return

        def callback(options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, _sendable_values(attributes)) for value, attributes in read()]

        is_gauge, meter = instrument.kind == "gauge", self._meter
        create = meter.create_observable_gauge if is_gauge else meter.create_observable_counter
        create(instrument.name, [callback], instrument.unit, instrument.description)

    def shown(self, name: str, value: Json) -> Attributes:
        """The attribute with an argument or a result, if the manifest wants them: JSON, masked and cut."""
        if self.mask is None or value is None:
            return {}
        try:
            text = (
                value if isinstance(value, str) else _start(value, MAX_SHOWN_CHARACTERS + self.mask.longest)
            )
        except (RecursionError, ValueError):  # too deep, or an integer with more digits than Python writes
            return {}
        return {name: self.mask.start(text, MAX_SHOWN_CHARACTERS)}


NO_TELEMETRY: Final = Telemetry()


def client_context(meta: Mapping[str, Json] | None) -> Context:
    """The trace that a client's request belongs to, from its `_meta`; an empty one if that is missing or invalid.

    `baggage` is not read, so it does not reach upstreams.
    Source: SEP-414; W3C Trace Context.
    """
    given = {key: (meta or {}).get(key) for key in ("traceparent", "tracestate")}
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    usable = {key: value for key, value in texts.items() if len(value) <= MAX_CONTEXT_CHARACTERS}
    return _TRACE_CONTEXT.extract(usable, Context())


def current_trace() -> str:
    """The `traceparent` of the current span; "" if there is none."""
    carrier: dict[str, str] = {}
    _TRACE_CONTEXT.inject(carrier)
    return carrier.get("traceparent", "")


def _recorder(meter: Meter, instrument: Instrument) -> Callable[[float, Attributes], None]:
    if instrument.kind == "counter":
        return meter.create_counter(instrument.name, instrument.unit, instrument.description).add
    create = partial(meter.create_histogram, explicit_bucket_boundaries_advisory=SECONDS_BOUNDARIES)
    return create(instrument.name, instrument.unit, instrument.description).record


def _start(value: Json, characters: int) -> str:
    """The start of a value as JSON. It is not written whole, which takes long for megabytes."""
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part
        if len(text) > characters:
            break
    return text


def _sendable_values(attributes: Attributes) -> dict[str, str | int]:
    # A lone surrogate would cost the exporter its whole batch.
    return {key: sendable(value) if isinstance(value, str) else value for key, value in attributes.items()}
