"""``%load_ext langmem_adapters``, then ``%langmem``: a cache for a notebook's models, and what it did in a cell."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from langmem_adapters import views
from langmem_adapters.errors import ConfigurationError, LangmemError, MissingDependency
from langmem_adapters.experience.functions.rules import Invocation
from langmem_adapters.flow import Flow

try:
    from langchain_core.globals import get_llm_cache, set_llm_cache
    from langchain_core.outputs import ChatGeneration, Generation
except ImportError as error:
    raise MissingDependency("langchain-core", "langchain") from error

from langmem_adapters.langchain.cache import ExperienceCache
from langmem_adapters.langchain.caching.answers import Request
from langmem_adapters.langchain.caching.prompt import last_question
from langmem_adapters.langchain.caching.tenant_cache import TenantCache

_MAX_ANSWERS = 1_000  # answers that can be shown, of all cells together
_MAX_ROWS = 20  # of one cell
_MAGIC_NAME = "langmem"


class _Answer(NamedTuple):
    """What became of a model's request."""

    kind: Literal["served", "cached", "not kept"]
    request: str
    answer: str
    key: str | None  # under which it is kept, if it is
    age: float | None = None


class Report:
    """The output of a command: a sentence or a few lines, and for a notebook a view."""

    def __init__(self, text: str, view: Callable[[], str] | None = None) -> None:
        self._text = text
        self._view = view

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str | None:
        return None if self._view is None else views.render_safely(self, self._view)


class _ReportingCache(ExperienceCache):
    """An ExperienceCache that reports what it serves and keeps."""

    def __init__(self, url: str | None, report_answer: Callable[[_Answer], None]) -> None:
        super().__init__(url)
        self._report_answer = report_answer

    def _look_up(self, tenant_cache: TenantCache, request: Request) -> Flow[list[Generation] | None]:
        answer = yield from super()._look_up(tenant_cache, request)
        if answer is not None:
            metadata = answer[0].message.response_metadata if isinstance(answer[0], ChatGeneration) else {}
            question, age = last_question(request.prompt), metadata.get("cache_age")
            self._report_answer(_Answer("served", question, _answer_text(answer), request.key, age))
        return answer

    def _keep(
        self, tenant_cache: TenantCache, request: Request, answer: Sequence[Generation]
    ) -> Flow[Invocation | None]:
        call = yield from super()._keep(tenant_cache, request, answer)
        if tenant_cache.pool.writes:
            key = request.key if call is not None and call.stored and not call.is_outdated else None
            question = last_question(request.prompt)
            self._report_answer(_Answer("cached" if key else "not kept", question, _answer_text(answer), key))
        return call


class Notebook:
    """The magic of one IPython shell. Every command can be run again, and says what is wrong in one sentence."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._cache: _ReportingCache | None = None
        self._url: str | None = None
        self._former_cache: Any = None
        self._cell = 0  # counted here, from 1
        self._reported_cell = 0
        self._reported_number: int | None = None  # as the shell counts; None: it does not count that cell
        self._recent_answers: deque[tuple[int, _Answer]] = deque(maxlen=_MAX_ANSWERS)  # with the cell
        self._is_watching = False

    def langmem(self, line: str) -> Any:
        """Keep the answers of LangChain's models, and serve them again, in this notebook.

        ::

            %langmem on [url]    keep answers there, else where LANGMEM_STORE_URL or REDIS_URL says, else in langmem.db
            %langmem on --watch  and say after each cell what was served and cached in it
            %langmem last        what was served and cached in the last cell that asked a model
            %langmem stats       hits, misses and what they have saved
            %langmem clear       forget all answers; "clear last": those of that cell
            %langmem off         the former cache is LangChain's cache again
            %langmem             whether it is on
        """
        from IPython.core.error import UsageError  # noqa: PLC0415 - there is one where this runs

        try:
            command, *words = _split_line(line) or ["status"]
            return self._run_command(command, words)
        except LangmemError as error:
            raise UsageError(views.mask_secrets(str(error))) from None

    def _run_command(self, name: str, words: list[str]) -> Any:
        commands: dict[str, Callable[..., Any]] = {
            "on": self._on,
            "off": self._off,
            "last": self._cell_report,
            "stats": self._stats,
            "clear": self._clear,
            "status": self._status,
        }
        if name not in commands:
            raise ConfigurationError(f"%langmem takes {', '.join(commands)}, not {name!r:.50}")
        if name in {"on", "clear"}:
            return commands[name](words)
        if words:
            raise ConfigurationError(f"%langmem {name} takes nothing more")
        return commands[name]()

    def _on(self, words: list[str]) -> Report:
        urls = [word for word in words if word != "--watch"]
        if len(urls) > 1 or any(url.startswith("-") for url in urls):
            raise ConfigurationError("%langmem on takes [url] [--watch], and nothing else")
        url = urls[0] if urls else self._url
        cache = self._cache if self._cache and url == self._url else _ReportingCache(url, self._report_answer)
        current_cache = get_llm_cache()
        if current_cache is not self._cache:
            self._former_cache = current_cache
        set_llm_cache(cache)
        self._cache, self._url, self._is_watching = cache, url, "--watch" in words
        return self._status()

    def _off(self) -> Report:
        cache, former_cache = self._cache, self._former_cache
        self._cache = self._url = self._former_cache = None
        self._is_watching = False
        if cache is not None:
            if get_llm_cache() is not cache:
                return Report("The cache of this notebook is off; another one, set after it, stays on.")
            set_llm_cache(former_cache)
        return Report("The cache of this notebook is off.")

    def _status(self) -> Report:
        if self._cache is None:
            return Report("The cache of this notebook is off.")
        if get_llm_cache() is not self._cache:
            return Report("Another cache was set after that of this notebook: %langmem on restores this one.")
        return Report(f"The cache of this notebook is on, in {views.mask_secrets(repr(self._cache.pool.store))}.")

    def _stats(self) -> dict[str, int]:
        return self._active_cache().stats()

    def _clear(self, words: list[str]) -> Report:
        cache = self._active_cache()
        if words == ["last"]:
            deleted = sum(cache.delete(key) for key in {answer.key for answer in self._answers()} if key)
            return Report(f"{deleted} answer{'' if deleted == 1 else 's'} forgotten.")
        if words:
            raise ConfigurationError("%langmem clear takes last, or nothing")
        cache.clear()
        return Report("All answers are forgotten.")

    def _active_cache(self) -> _ReportingCache:
        if self._cache is None:
            raise ConfigurationError("the cache of this notebook is off: turn it on with %langmem on")
        return self._cache

    def _answers(self) -> list[_Answer]:
        """The answers of the last cell in which a model was asked."""
        recent = list(self._recent_answers)
        return [answer for cell, answer in recent if cell == recent[-1][0]]

    def _cell_report(self) -> Report:
        number = self._reported_number
        is_over = number is not None and self._was_asked_in(self._reported_cell)
        return _format_report(f"In [{number}]" if is_over else "This cell", self._answers())

    def _was_asked_in(self, cell: int) -> bool:
        """Whether the last answer is one of this cell."""
        return bool(self._recent_answers) and self._recent_answers[-1][0] == cell

    # --- events of the shell and the cache

    def _report_answer(self, answer: _Answer) -> None:
        self._recent_answers.append((self._cell, answer))

    def begin(self, info: Any) -> None:  # noqa: ARG002 - as the shell calls it
        """A cell is about to run."""
        self._cell += 1

    def end(self, result: Any) -> None:
        """A cell has run."""
        if not self._was_asked_in(self._cell) or self._reported_cell == self._cell:
            return  # nothing was asked, or a cell that ran inside of this one has reported it
        self._reported_cell, self._reported_number = self._cell, result.execution_count
        if self._is_watching:
            data, metadata = self._shell.display_formatter.format(self._cell_report())
            self._shell.display_pub.publish(data, metadata)

    def close(self) -> None:
        """Leave the shell and LangChain as they were."""
        self._off()
        self._shell.events.unregister("pre_run_cell", self.begin)
        self._shell.events.unregister("post_run_cell", self.end)


def load(shell: Any) -> None:
    """Register the magic with a shell, in the place of another one of that name; one, however often this is called."""
    notebook = _notebook_of(shell)
    if notebook is None:
        notebook = Notebook(shell)
        shell.events.register("pre_run_cell", notebook.begin)
        shell.events.register("post_run_cell", notebook.end)
    shell.register_magic_function(notebook.langmem, "line", _MAGIC_NAME)


def unload(shell: Any) -> None:
    """Remove the magic, and switch its cache off; another one of that name stays."""
    notebook = _notebook_of(shell)
    if notebook is None:
        return
    magics = shell.magics_manager.magics["line"]
    if magics.get(_MAGIC_NAME) == notebook.langmem:
        del magics[_MAGIC_NAME]
    notebook.close()


def _notebook_of(shell: Any) -> Notebook | None:
    owners = (getattr(callback, "__self__", None) for callback in shell.events.callbacks["pre_run_cell"])
    return next((owner for owner in owners if isinstance(owner, Notebook)), None)


def _split_line(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""  # Windows paths have backslashes
    try:
        return list(lexer)
    except ValueError:
        raise ConfigurationError("%langmem: a quotation mark is not closed") from None


def _format_report(cell_name: str, answers: Sequence[_Answer]) -> Report:
    if not answers:
        return Report("No cell has asked a model since the cache was on.")
    counts = [(kind, sum(answer.kind == kind for answer in answers)) for kind in ("served", "cached", "not kept")]
    heading = f"{cell_name}: {', '.join(f'{count} {kind}' for kind, count in counts if count)}"
    visible = answers[:_MAX_ROWS]
    lines = [f"  {each.kind}: {views.one_line(each.request)} -> {views.one_line(each.answer)}" for each in visible]
    rows = [(answer.kind, answer.request, answer.answer, _format_age(answer.age)) for answer in visible]
    columns = ("", "request", "answer", "kept since")
    more = [f"  … {len(answers) - _MAX_ROWS} more"] if len(answers) > _MAX_ROWS else []
    return Report("\n".join([heading, *lines, *more]), lambda: views.rows(heading, columns, rows, total=len(answers)))


def _format_age(age: float | None) -> str:
    """Seconds as a person says them."""
    if age is None:
        return ""
    for name, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age >= seconds:
            return f"{age / seconds:.0f} {name}"
    return f"{age:.0f} s"


def _answer_text(generations: Sequence[Generation]) -> str:
    """What a model said, or which tools it called."""
    if not generations:
        return ""
    first = generations[0]
    calls = getattr(first.message, "tool_calls", []) if isinstance(first, ChatGeneration) else []
    return "\n".join(filter(None, [first.text, *(f"→ {call['name']}" for call in calls)]))
