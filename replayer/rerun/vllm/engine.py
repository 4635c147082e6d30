"""One scheduler of vLLM, with every input that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....recorder.engines.vllm.watch import attach
from ..protocol import Answer, Decision, Reaction, State, Submission, TokenSource, Unsupported
from ..refusing import Refusing
from .build import Built
from .seen import Seen
from .told import Told

__all__ = ["END", "VllmEngine"]

END = 0
"""The token that ends a request; no synthetic token is that small."""

_MANY = 1 << 20
"""No limit but that of the model."""

_REFUSED = "Failed to reset KV cache even when all the running requests are preempted"


@dataclass(frozen=True, slots=True)
class Handle:
    """A step in flight.

    Attributes
    ----------
    output : object
        vLLM's ``SchedulerOutput``.
    keys : tuple of str
        The requests that it schedules, in order.
    """

    output: Any
    keys: tuple[str, ...]


class _Key(str):
    """A request id whose hash is its number: sets of ids have one order, whatever the seed of hashes."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, text: str, number: int) -> _Key:
        key = super().__new__(cls, text)
        key.number = number
        return key

    def __hash__(self) -> int:
        return self.number


class VllmEngine(Refusing):
    """See `Engine`.

    Parameters
    ----------
    built : Built
        A scheduler that nothing has reached yet.
    tokens : callable
        The content of requests.
    """

    engine = "vLLM"

    def __init__(self, built: Built, tokens: TokenSource) -> None:
        from vllm.v1.request import RequestStatus

        self._scheduler = built.scheduler
        self._hasher = built.hasher
        self._tokens = tokens
        self._aborted = RequestStatus.FINISHED_ABORTED
        self._keys: dict[int, _Key] = {}
        self._numbers: dict[str, int] = {}
        self._params: dict[int, int | None] = {}
        self._newest = 0
        """The latest arrival so far."""
        self._told = Told(self._numbers)
        self._seen = Seen(built.scheduler, self._numbers)
        self._fill_chunks()
        self._watch = attach(built.scheduler, self._told, _raise)

    # Inputs

    def submit(self, submission: Submission) -> Reaction:
        """Have a request arrive."""
        number = submission.request
        rank = number if submission.id_rank is None else submission.id_rank
        key = _Key(f"{rank:08d}-{number}", number)
        self._keys[number], self._numbers[key] = key, number
        self._params[number] = submission.max_tokens
        prompt = [self._tokens(number, p) for p in range(submission.prompt_tokens)]
        self._scheduler.add_request(self._request(key, submission, prompt, submission.arrive_ns))
        return Reaction(self._told.take())

    def abort(self, requests: Sequence[int]) -> Reaction:
        """Abort requests, in this order, in one call where the engine's own order is this one."""
        keys = [self._keys[n] for n in requests if n in self._keys]
        batches: list[Any] = [keys] if list(set(keys)) == keys else keys
        for batch in batches:
            self._scheduler.finish_requests(batch, self._aborted)
        return Reaction(self._told.take())

    def next_chunk(
        self,
        request: int,
        tokens: int,
        last: bool,
        max_tokens: int | None = None,
        arrive_ns: int | None = None,
    ) -> Reaction:
        """Give a session its next chunk, or its end, or both; nothing where the session has ended.

        Raises
        ------
        Unsupported
            The request is no session, or would be longer than the model takes: vLLM leaves it to who sends
            the chunk to see to that.
        """
        key = self._keys.get(request)
        if key is None or key not in self._scheduler.requests:
            return Reaction()
        session = self._scheduler.requests[key]
        if session.streaming_queue is None:
            raise Unsupported(f"request {request} is no session: it has no next chunk")
        queued = sum(len(u.prompt_token_ids or ()) for u in session.streaming_queue if u is not None)
        if tokens and session.num_tokens + queued + tokens >= self._scheduler.max_model_len:
            raise Unsupported(f"the session {request} would be longer than the model takes")
        limit = self._params[request] if max_tokens is None else max_tokens
        if tokens:
            flags = ("resumable",)
            self._add_chunk(key, Submission(request, tokens, limit, flags=flags, arrive_ns=arrive_ns))
        if last and key in self._scheduler.requests:
            self._add_chunk(key, Submission(request, 1, limit))
        return Reaction(self._told.take())

    def pause(self, word: str) -> Reaction:
        """Pause: ``wait`` lets what runs go on, ``keep`` nothing; ``abort`` aborts all and waits."""
        from vllm.v1.core.sched.interface import PauseState

        if word not in ("wait", "keep", "abort"):
            raise Unsupported(f"vLLM has no mode of pause named {word}")
        ended: list[Any] = []
        if word == "abort":
            ended = self._scheduler.finish_requests(None, self._aborted)
        self._scheduler.set_pause_state(PauseState.PAUSED_ALL if word == "keep" else PauseState.PAUSED_NEW)
        # the hooks leave out what an abort says anyhow; here no abort was asked for
        finishes = tuple(Decision("finish", self._numbers[r.request_id]) for r in ended)
        return Reaction(self._told.take() + finishes)

    def resume(self) -> Reaction:
        """End the pause."""
        from vllm.v1.core.sched.interface import PauseState

        self._scheduler.set_pause_state(PauseState.UNPAUSED)
        return Reaction(self._told.take())

    def cache_reset(self, word: str | None) -> Reaction:
        """Forget the prefix cache; ``running``: preempt all that runs for it.

        vLLM refuses that in words while a waiting session holds blocks: its user is told, it is no finding.
        """
        try:
            self._scheduler.reset_prefix_cache(reset_running_requests=word == "running")
        except RuntimeError as e:
            if not str(e).startswith(_REFUSED) or not self._seen.waiting_holds():
                raise
        return Reaction(self._told.take())

    def step(self, decode_only: bool = False) -> Reaction:
        """Schedule; `decode_only` is vLLM's own throttle of prefills."""
        output = self._scheduler.schedule(decode_only)
        handle = Handle(output, tuple(output.num_scheduled_tokens))
        self._seen.launched(output)
        answers = []
        for key, tokens in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[key]
            answers.append(
                Answer(
                    self._numbers[key],
                    tokens=0 if request.is_prefill_chunk else 1,
                    # what the model works at: it knows the request only by what the step says
                    position=request.num_computed_tokens if tokens else None,
                )
            )
        return Reaction(self._told.take(), handle, answers=tuple(answers))

    def output(self, handle: Any, answers: Sequence[Answer]) -> Reaction:
        """Give the scheduler what the model made of a step."""
        from vllm.v1.outputs import ModelRunnerOutput

        given = {a.request: a for a in answers}
        sampled = [self._sampled(given.get(self._numbers[key])) for key in handle.keys]
        made = ModelRunnerOutput(
            req_ids=list(handle.keys),
            req_id_to_index={key: i for i, key in enumerate(handle.keys)},
            sampled_token_ids=sampled,
        )
        self._seen.landed(handle.output)
        shown = self._scheduler.update_from_output(handle.output, made)
        outputs = [one for of_client in shown.values() for one in of_client.outputs]
        return Reaction(
            self._told.take(),
            emitted=tuple(
                (self._numbers[one.request_id], tuple(one.new_token_ids))
                for one in outputs
                if one.new_token_ids
            ),
            ended=tuple(
                (self._numbers[one.request_id], one.finish_reason.name.lower())
                for one in outputs
                if one.finish_reason is not None
            ),
        )

    def state(self) -> State:
        """Return what is visible."""
        return self._seen.state()

    def fits(self, request: int) -> bool:
        """Return whether the free blocks would do for a request: each KV group has blocks of its own."""
        return self._seen.fits(self._keys[request])

    def stalled(self) -> str:
        """Return why nothing is scheduled any more, in words without numbers, "" where that is not seen."""
        return self._seen.stalled()

    def close(self) -> None:
        """Take the hooks off."""
        self._watch.detach()

    # Requests

    def _request(self, key: _Key, submission: Submission, prompt: list[int], arrival: int | None) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        arrived = self._newest + 1 if arrival is None else arrival
        self._newest = max(self._newest, arrived)
        return Request(
            request_id=key,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(
                max_tokens=_MANY if submission.max_tokens is None else submission.max_tokens,
                stop_token_ids=[END],
                detokenize=False,
                skip_reading_prefix_cache="skip_cache_read" in submission.flags or None,
            ),
            pooling_params=None,
            # whole ns: a float would make ties of what was none
            arrival_time=arrived,
            priority=submission.priority or 0,
            block_hasher=self._hasher,
            resumable="resumable" in submission.flags,
        )

    def _add_chunk(self, key: _Key, submission: Submission) -> None:
        # the tokens are put in where the chunk is taken up: only then it is known where they stand
        chunk = self._request(key, submission, [END] * submission.prompt_tokens, submission.arrive_ns)
        self._scheduler.add_request(chunk)

    def _fill_chunks(self) -> None:
        original = self._scheduler._update_request_as_session

        def update_request_as_session(session: Any, update: Any) -> Any:
            number, base = self._numbers[session.request_id], session.num_computed_tokens
            update.prompt_token_ids = [
                self._tokens(number, base + i) for i in range(len(update.prompt_token_ids or ()))
            ]
            return original(session, update)

        self._scheduler._update_request_as_session = update_request_as_session

    def _sampled(self, answer: Answer | None) -> list[int]:
        if answer is None or not answer.tokens:
            return []
        if answer.position is None:
            raise ValueError(f"the answer for request {answer.request} does not say where its tokens belong")
        tokens = [self._tokens(answer.request, answer.position + i) for i in range(answer.tokens)]
        if answer.word == "stop":
            tokens[-1] = END
        return tokens


def _raise(fault: Exception) -> None:
    raise fault
