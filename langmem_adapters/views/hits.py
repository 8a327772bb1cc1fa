"""What a search found: how well each fits, why, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from langmem_adapters.views.markup import Html, bar, clip, element, escape, frame, header, join, join_spaced, note
from langmem_adapters.views.plain import amount, as_text, format_time, one_line, shorten

Matching = Callable[[str, str], Sequence[tuple[int, int]]]
"""Where a text (the second argument) has the words of a query (the first): starts and ends."""

_MAX_HITS = 20
_MAX_CHARS = 600  # of each
_MAX_CHARS_SEARCHED = 50_000  # for the first match
_MAX_CHARS_BEFORE = 160  # of them before the first match, if it is far into the text
_MAX_SIGNALS = 8  # the strongest

if TYPE_CHECKING:  # shapes of what is shown; to make these classes costs time at every start

    class _Occurrence(Protocol):
        session: str
        created_at: float | None

    class _Message(Protocol):
        role: str
        name: str | None

        @property
        def text(self) -> str: ...

    class _Memory(Protocol):
        @property
        def message(self) -> _Message: ...
        @property
        def occurrences(self) -> Sequence[_Occurrence]: ...

    _Recalled: TypeAlias = tuple[_Memory, float, Mapping[str, float]]  # with its score and signals

    class _Rating(Protocol):
        val: int
        reason: str

    class _Metric(Protocol):
        time_cost: float
        money_cost: float
        model: str
        input_tokens: int
        output_tokens: int

        @property
        def score(self) -> _Rating | None: ...

    class _Experience(Protocol):
        req: Any
        resp: Any
        tag: str
        timestamp: float | None
        expires_at: float | None

        @property
        def metric(self) -> _Metric | None: ...
        @property
        def exp_type(self) -> str: ...

    _Similar: TypeAlias = tuple[_Experience, float]  # with its score


def memories(
    hits: Sequence[_Recalled],
    *,
    query: str = "",
    matching: Matching | None = None,
    meaning_of: Callable[[str], str] = str,
) -> str:
    """Show memories that a search for ``query`` found, best first; ``meaning_of`` says what a signal is."""
    parts = [_memory(recalled, query, matching, meaning_of) for recalled in hits[:_MAX_HITS]]
    return _hit_list(parts, len(hits), "memory", "memories", query)


def _memory(recalled: _Recalled, query: str, matching: Matching | None, meaning_of: Callable[[str], str]) -> Html:
    memory, score, signals = recalled
    message, occurrences = memory.message, memory.occurrences
    last = occurrences[-1] if occurrences else None
    repeats = f"said {len(occurrences)} times" if len(occurrences) > 1 else ""
    source: list[str] = []
    if last:
        source = [format_time(last.created_at), f"session {last.session}" if last.session else ""]
    text = element("div", _marked_text(message.text, query, matching), class_="lm-text", dir="auto")
    parts = [_score_line(score, message.name or message.role, *source, repeats), text]
    if signals:
        parts.append(element("div", join_spaced(*_signals(signals, meaning_of)), class_="lm-signals"))
    return element("div", *parts, class_="lm-hit")


def _signals(signals: Mapping[str, float], meaning_of: Callable[[str], str]) -> Iterator[Html]:
    """The signals of a score, the strongest first; those that lower it in another colour."""
    strongest = sorted(signals.items(), key=lambda signal: -abs(signal[1]))
    maximum = max(map(abs, signals.values())) or 1.0
    for name, value in strongest[:_MAX_SIGNALS]:
        level = bar(abs(value) / maximum, width="lm-small" if value >= 0 else "lm-small lm-bad")
        yield element(
            "span",
            level,
            f"{one_line(name, 30).replace('_', ' ')} {value:+.2f}",
            title=one_line(meaning_of(name), 120),
        )
    if len(strongest) > _MAX_SIGNALS:
        yield element("span", f"… {len(strongest) - _MAX_SIGNALS} more")


def experiences(hits: Sequence[_Similar], *, query: str = "", matching: Matching | None = None) -> str:
    """Show experiences that are like a request, best first."""
    parts = [
        element(
            "div",
            _score_line(score, *_details(experience)),
            _request_and_answer(experience, query, matching),
            class_="lm-hit",
        )
        for experience, score in hits[:_MAX_HITS]
    ]
    return _hit_list(parts, len(hits), "experience", "experiences", query)


def one_experience(experience: _Experience) -> str:
    """Show a request and the answer that it got."""
    return frame(header("Experience", *_details(experience)), _request_and_answer(experience, "", None))


def comparison(score: float, guard: str, reason: str) -> str:
    """Show whether an answer may be served for another request, and which guard refused it."""
    if not guard:
        outcome, decided_by = element("span", "matched", class_="lm-good"), "nothing refused"
    else:
        outcome, decided_by = element("span", "refused", class_="lm-refused"), f"by {one_line(guard, 40)}"
    parts = [outcome, element("b", f"{score:.2f}"), bar(score), one_line(reason, 200)]
    return frame(element("div", join_spaced(*parts, element("span", decided_by, class_="lm-dim")), class_="lm-score"))


def _hit_list(parts: Sequence[Html], total: int, singular: str, plural: str, query: str) -> str:
    noun = singular if total == 1 else plural
    title = f"{total:,} {noun}" if total else f"No {singular} was found"
    notes = [note(f"… {total - len(parts):,} more are not shown.")] if total > len(parts) else []
    return frame(header(title, f"for “{one_line(query, 76)}”" if query else ""), *parts, *notes)


def _score_line(score: float, *details: str) -> Html:
    spans = [element("span", one_line(detail, 60), class_="lm-dim") for detail in details if detail]
    return element("div", join_spaced(element("b", f"{score:.2f}"), bar(score), *spans), class_="lm-score")


def _details(experience: _Experience) -> Iterator[str]:
    metric = experience.metric
    yield experience.exp_type if experience.exp_type != "success" else ""
    yield f"tag {experience.tag}" if experience.tag else ""
    yield format_time(experience.timestamp)
    yield f"until {format_time(experience.expires_at)}" if experience.expires_at is not None else ""
    if metric is not None:
        yield f"quality {metric.score.val}/10" if metric.score else ""
        yield metric.model
        tokens = metric.input_tokens + metric.output_tokens
        yield f"{tokens:,} tokens" if tokens else ""
        yield f"{amount(metric.time_cost)} s" if metric.time_cost else ""
        yield f"cost {amount(metric.money_cost)}" if metric.money_cost else ""


def _request_and_answer(experience: _Experience, query: str, matching: Matching | None) -> Html:
    if experience.req is not None:
        request = element("dd", _marked_text(as_text(experience.req), query, matching), dir="auto")
    else:
        request = element("dd", "kept as a hash only", class_="lm-dim")
    rows = [
        element("dt", "request"),
        request,
        element("dt", "answer"),
        element("dd", clip(as_text(experience.resp), _MAX_CHARS), dir="auto"),
    ]
    rating = experience.metric.score if experience.metric else None
    if rating is not None and rating.reason:
        rows += [element("dt", "judged"), element("dd", clip(rating.reason, _MAX_CHARS), dir="auto")]
    return element("dl", *rows, class_="lm-pair")


def _marked_text(text: str, query: str, matching: Matching | None) -> Html:
    """A text with the words of the query marked; of a long one, the part around the first of them."""
    if matching is None or not query:
        return clip(text, _MAX_CHARS)
    searched, omitted = shorten(text, _MAX_CHARS_SEARCHED)  # without secrets: the end of one is not known as such
    first = next((start for start, _ in matching(query, searched)), 0)
    start = first - _MAX_CHARS_BEFORE if first > _MAX_CHARS - _MAX_CHARS_BEFORE else 0
    prefix = [element("span", f"{start:,} characters … ", class_="lm-dim")] if start else []

    def marked(visible: str) -> Html:
        return _mark(visible, matching(query, visible))

    return join([*prefix, clip(searched[start:], _MAX_CHARS, marked, omitted=omitted)])


def _mark(text: str, matches: Sequence[tuple[int, int]]) -> Html:
    parts: list[str] = []
    end = 0
    for start, stop in matches:
        parts += [escape(text[end:start]), element("mark", text[start:stop])]
        end = stop
    return join([*parts, text[end:]])
