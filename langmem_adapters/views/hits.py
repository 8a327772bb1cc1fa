"""What a search found: how well each fits, why, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langmem_adapters.views.markup import Html, bar, clipped, element, escaped, frame, header, joined, note, spaced
from langmem_adapters.views.plain import amount, as_text, one_line, when

__all__ = ["Matching", "compared", "experiences", "memories", "one_experience"]

Matching = Callable[[str, str], Sequence[tuple[int, int]]]
"""Where a text (the second argument) has the words of a query (the first): starts and ends."""

_MOST = 20  # hits that are shown
_LONG = 600  # characters of each
_BEFORE = 160  # of them before the first match, if it is far into the text
_SIGNALS = 8  # that are shown, the strongest

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

    class _Recalled(Protocol):
        @property
        def memory(self) -> _Memory: ...
        @property
        def score(self) -> float: ...
        @property
        def signals(self) -> Mapping[str, float]: ...

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

    class _Similar(Protocol):
        @property
        def experience(self) -> _Experience: ...
        @property
        def score(self) -> float: ...

    class _Verdict(Protocol):
        @property
        def score(self) -> float: ...
        @property
        def guard(self) -> str: ...
        @property
        def reason(self) -> str: ...


def memories(
    found: Sequence[_Recalled],
    *,
    query: str = "",
    matching: Matching | None = None,
    meaning_of: Callable[[str], str] = str,
) -> str:
    """Show memories that a search for ``query`` found, best first; ``meaning_of`` says what a signal is."""
    parts = [_memory(recalled, query, matching, meaning_of) for recalled in found[:_MOST]]
    return _found(parts, len(found), "memory", "memories", query)


def _memory(recalled: _Recalled, query: str, matching: Matching | None, meaning_of: Callable[[str], str]) -> Html:
    message, occurrences = recalled.memory.message, recalled.memory.occurrences
    last = occurrences[-1] if occurrences else None
    times = f"said {len(occurrences)} times" if len(occurrences) > 1 else ""
    place = [when(last.created_at), f"session {last.session}" if last.session else ""] if last else []
    said = element("div", _marked(message.text, query, matching), class_="lm-text", dir="auto")
    signals = (
        [element("div", spaced(*_signals(recalled.signals, meaning_of)), class_="lm-signals")]
        if recalled.signals
        else []
    )
    return element(
        "div", _score(recalled.score, message.name or message.role, *place, times), said, *signals, class_="lm-hit"
    )


def _signals(signals: Mapping[str, float], meaning_of: Callable[[str], str]) -> Iterator[Html]:
    """The signals of a score, the strongest first; those that lower it in another colour."""
    strongest = sorted(signals.items(), key=lambda signal: -abs(signal[1]))
    most = abs(strongest[0][1]) or 1.0
    for name, value in strongest[:_SIGNALS]:
        measure = bar(abs(value) / most, width="lm-small" if value >= 0 else "lm-small lm-bad")
        yield element(
            "span",
            measure,
            f"{one_line(name, 30).replace('_', ' ')} {value:+.2f}",
            title=one_line(meaning_of(name), 120),
        )
    if len(strongest) > _SIGNALS:
        yield element("span", f"… {len(strongest) - _SIGNALS} more")


def experiences(found: Sequence[_Similar], *, query: str = "", matching: Matching | None = None) -> str:
    """Show experiences that are like a request, best first."""
    parts = [
        element(
            "div",
            _score(one.score, *_described(one.experience)),
            _pair(one.experience, query, matching),
            class_="lm-hit",
        )
        for one in found[:_MOST]
    ]
    return _found(parts, len(found), "experience", "experiences", query)


def one_experience(experience: _Experience) -> str:
    """Show a request and the answer that it got."""
    return frame(header("Experience", *_described(experience)), _pair(experience, "", None))


def compared(verdict: _Verdict) -> str:
    """Show whether an answer may be served for another request, and which guard refused it."""
    if not verdict.guard:
        said, who = element("span", "matched", class_="lm-good"), "nothing refused"
    else:
        said, who = element("span", "refused", class_="lm-refused"), f"by {one_line(verdict.guard, 40)}"
    parts = [said, element("b", f"{verdict.score:.2f}"), bar(verdict.score), one_line(verdict.reason, 200)]
    return frame(element("div", spaced(*parts, element("span", who, class_="lm-dim")), class_="lm-score"))


def _found(parts: Sequence[Html], total: int, one: str, many: str, query: str) -> str:
    title = f"{total:,} {one if total == 1 else many}" if total else f"No {one} was found"
    more = [note(f"… {total - len(parts):,} more are not shown.")] if total > len(parts) else []
    return frame(header(title, f"for “{one_line(query, 76)}”" if query else ""), *parts, *more)


def _score(score: float, *details: str) -> Html:
    said = [element("span", one_line(detail, 60), class_="lm-dim") for detail in details if detail]
    return element("div", spaced(element("b", f"{score:.2f}"), bar(score), *said), class_="lm-score")


def _described(experience: _Experience) -> Iterator[str]:
    metric = experience.metric
    yield experience.exp_type if experience.exp_type != "success" else ""
    yield f"tag {experience.tag}" if experience.tag else ""
    yield when(experience.timestamp)
    yield f"until {when(experience.expires_at)}" if experience.expires_at is not None else ""
    if metric is not None:
        yield f"quality {metric.score.val}/10" if metric.score else ""
        yield metric.model
        tokens = metric.input_tokens + metric.output_tokens
        yield f"{tokens:,} tokens" if tokens else ""
        yield f"{amount(metric.time_cost)} s" if metric.time_cost else ""
        yield f"cost {amount(metric.money_cost)}" if metric.money_cost else ""


def _pair(experience: _Experience, query: str, matching: Matching | None) -> Html:
    asked = as_text(experience.req) if experience.req is not None else ""
    rows = [
        element("dt", "request"),
        element("dd", _marked(asked, query, matching), dir="auto")
        if asked
        else element("dd", "kept as a hash only", class_="lm-dim"),
        element("dt", "answer"),
        element("dd", clipped(as_text(experience.resp), _LONG), dir="auto"),
    ]
    rating = experience.metric.score if experience.metric else None
    if rating is not None and rating.reason:
        rows += [element("dt", "judged"), element("dd", clipped(rating.reason, _LONG), dir="auto")]
    return element("dl", *rows, class_="lm-pair")


def _marked(text: str, query: str, matching: Matching | None) -> Html:
    """A text with the words of the query marked; of a long one, the part around the first of them."""
    if matching is None or not query:
        return clipped(text, _LONG)
    first = next((start for start, _ in matching(query, text)), 0)
    start = first - _BEFORE if first > _LONG - _BEFORE else 0
    front = [element("span", f"{start:,} characters … ", class_="lm-dim")] if start else []
    return joined([*front, clipped(text[start:], _LONG, lambda shown: _with_marks(shown, matching(query, shown)))])


def _with_marks(text: str, places: Sequence[tuple[int, int]]) -> Html:
    parts: list[str] = []
    end = 0
    for start, stop in places:
        parts += [escaped(text[end:start]), element("mark", text[start:stop])]
        end = stop
    return joined([*parts, text[end:]])
