"""A real engine with a long context, recorded: what the bench measures beside its own tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import (
    engine_environment,
    prompt_program,
    record_arguments,
    record_program,
)
from tapedelay.recorder.demo.tiny_model import TinyModel, write_tiny_model

__all__ = ["record_long"]


def record_long(tape: Path, prompt_tokens: int, predicted: int) -> tuple[Path, dict[str, Any]] | str:
    """Record a tiny model that reads and makes so many tokens.

    Returns
    -------
    tuple of (Path, dict), or str
        The tape and what the program said of itself, or why it could not be recorded.
    """
    context = prompt_tokens + predicted + 512
    try:
        packages = engines.xllamacpp(engines.XLLAMACPP_NEWEST)
        model = write_tiny_model(tape.with_name("long.gguf"), TinyModel(context=context))
        sizes = {"--prompt-tokens": prompt_tokens, "--n-predict": predicted, "--context": context}
        program = prompt_program(model, *(word for k, v in sizes.items() for word in (k, str(v))))
        made = record_program(record_arguments(tape, program), engine_environment(packages))
    except InfrastructureError as error:
        return error.text()
    return made.tape, made.answer
