"""A tiny model with random weights, written as GGUF: enough to make a real engine schedule real work.

The architecture is ``qwen35``: gated delta net layers, whose convolution and recurrent states live in the KV
memory, with full attention every fourth layer. With that memory on the host, a prompt of several ubatches
goes back and forth between the device and the CPU, as upstream bug #26040 needs it. The weights are random
numbers from a seed, so the text is nonsense, yet the same nonsense in every run.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["TinyModel", "write_tiny_model"]

_GGUF_VERSION = 3
_ALIGNMENT_BYTES = 32
_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5
_TENSOR_F32 = 0
_TOKEN_NORMAL, _TOKEN_UNKNOWN, _TOKEN_CONTROL, _TOKEN_BYTE = 1, 2, 3, 6

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TinyModel:
    """Sizes of the model; the defaults give about 12 MB.

    Parameters
    ----------
    embedding, feed_forward, vocabulary, layers : int
        Width of the residual stream and of the feed-forward layers, number of tokens, number of layers.
    heads, kv_heads, head_size : int
        Attention heads of every fourth layer.
    state_size, state_heads, state_groups, conv_kernel : int
        Shape of the recurrent state of the other layers.
    seed : int
        Seed of the weights.
    """

    embedding: int = 256
    feed_forward: int = 512
    vocabulary: int = 512
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    state_size: int = 64
    state_heads: int = 4
    state_groups: int = 2
    conv_kernel: int = 4
    attention_interval: int = 4
    context: int = 2048
    seed: int = 7

    @property
    def state_keys(self) -> int:
        """Width of the keys of a recurrent layer."""
        return self.state_size * self.state_groups

    @property
    def state_values(self) -> int:
        """Width of the values of a recurrent layer."""
        return self.state_size * self.state_heads


def write_tiny_model(path: Path, model: TinyModel | None = None) -> Path:
    """Write the model and return its path.

    The file appears under its name only when it is complete, so two processes may write it at once.

    Parameters
    ----------
    path : Path
        Where the GGUF file goes.
    model : TinyModel, optional
        Sizes and seed.
    """
    model = model or TinyModel()
    settings = list(_settings(model))
    tensors = list(_tensors(model))
    head = b"GGUF" + struct.pack("<IQQ", _GGUF_VERSION, len(tensors), len(settings)) + b"".join(settings)
    offset = 0
    for name, values in tensors:
        shape = values.shape[::-1]  # GGUF counts the fastest dimension first
        head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", _TENSOR_F32, offset)
        offset += _aligned(values.nbytes)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as out:
            out.write(_padded(head))
            for _, values in tensors:
                out.write(_padded(values.tobytes()))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _settings(m: TinyModel) -> Iterator[bytes]:
    yield _setting("general.architecture", "qwen35")
    yield _setting("general.name", "tiny-random-qwen35")
    sizes: dict[str, int | float] = {
        "context_length": m.context,
        "embedding_length": m.embedding,
        "block_count": m.layers,
        "feed_forward_length": m.feed_forward,
        "vocab_size": m.vocabulary,
        "attention.head_count": m.heads,
        "attention.head_count_kv": m.kv_heads,
        "attention.key_length": m.head_size,
        "attention.value_length": m.head_size,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": m.head_size,
        "rope.freq_base": 1e6,
        "ssm.conv_kernel": m.conv_kernel,
        "ssm.inner_size": m.state_values,
        "ssm.state_size": m.state_size,
        "ssm.time_step_rank": m.state_heads,
        "ssm.group_count": m.state_groups,
        "full_attention_interval": m.attention_interval,
    }
    for name, size in sizes.items():
        yield _setting(f"qwen35.{name}", size)
    yield _array("qwen35.rope.dimension_sections", _I32, "i", [11, 11, 10, 0])
    special = ["<unk>", "<s>", "</s>"]
    raw_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f" w{i}" for i in range(m.vocabulary - len(special) - len(raw_bytes))]
    kinds = [_TOKEN_UNKNOWN, _TOKEN_CONTROL, _TOKEN_CONTROL]
    kinds += [_TOKEN_BYTE] * len(raw_bytes) + [_TOKEN_NORMAL] * len(words)
    yield _setting("tokenizer.ggml.model", "llama")
    yield _strings("tokenizer.ggml.tokens", special + raw_bytes + words)
    yield _array("tokenizer.ggml.scores", _F32, "f", [0.0] * m.vocabulary)
    yield _array("tokenizer.ggml.token_type", _I32, "i", kinds)
    yield _setting("tokenizer.ggml.unknown_token_id", 0)
    yield _setting("tokenizer.ggml.bos_token_id", 1)
    yield _setting("tokenizer.ggml.eos_token_id", 2)
    yield _setting("tokenizer.ggml.add_bos_token", False)
    yield _setting("tokenizer.ggml.add_space_prefix", False)


def _tensors(m: TinyModel) -> Iterator[tuple[str, _Floats]]:
    rng = np.random.default_rng(m.seed)

    def matrix(inputs: int, outputs: int, scale: float | None = None) -> _Floats:
        values = rng.standard_normal((outputs, inputs)) * (inputs**-0.5 if scale is None else scale)
        return values.astype(np.float32)

    def scales(size: int) -> _Floats:
        return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)

    yield "token_embd.weight", matrix(m.embedding, m.vocabulary, 1.0)
    yield "output_norm.weight", scales(m.embedding)
    output = matrix(m.embedding, m.vocabulary)
    output[: 3 + 256] = 0  # special and byte tokens are never the likeliest
    yield "output.weight", output
    for layer in range(m.layers):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", scales(m.embedding)
        yield block + "post_attention_norm.weight", scales(m.embedding)
        if (layer + 1) % m.attention_interval == 0:
            queries, keys = m.head_size * m.heads, m.head_size * m.kv_heads
            yield block + "attn_q.weight", matrix(m.embedding, 2 * queries)  # queries and their gate
            yield block + "attn_k.weight", matrix(m.embedding, keys)
            yield block + "attn_v.weight", matrix(m.embedding, keys)
            yield block + "attn_output.weight", matrix(queries, m.embedding)
            yield block + "attn_q_norm.weight", scales(m.head_size)
            yield block + "attn_k_norm.weight", scales(m.head_size)
        else:
            convolved = 2 * m.state_keys + m.state_values
            yield block + "attn_qkv.weight", matrix(m.embedding, convolved)
            yield block + "attn_gate.weight", matrix(m.embedding, m.state_values)
            yield block + "ssm_conv1d.weight", matrix(m.conv_kernel, convolved)
            yield block + "ssm_dt.bias", scales(m.state_heads)
            yield block + "ssm_a", -np.abs(rng.standard_normal(m.state_heads)).astype(np.float32)
            yield block + "ssm_beta.weight", matrix(m.embedding, m.state_heads)
            yield block + "ssm_alpha.weight", matrix(m.embedding, m.state_heads)
            yield block + "ssm_norm.weight", scales(m.state_size)
            yield block + "ssm_out.weight", matrix(m.state_values, m.embedding)
        yield block + "ffn_gate.weight", matrix(m.embedding, m.feed_forward)
        yield block + "ffn_down.weight", matrix(m.feed_forward, m.embedding)
        yield block + "ffn_up.weight", matrix(m.embedding, m.feed_forward)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (_aligned(len(data)) - len(data))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _setting(key: str, value: str | bool | int | float) -> bytes:
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, bool):
        return _text(key) + struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return _text(key) + struct.pack("<II", _U32, value)
    return _text(key) + struct.pack("<If", _F32, value)


def _array(key: str, kind: int, code: str, values: Sequence[int | float]) -> bytes:
    head = _text(key) + struct.pack("<IIQ", _ARRAY, kind, len(values))
    return head + struct.pack(f"<{len(values)}{code}", *values)


def _strings(key: str, values: Sequence[str]) -> bytes:
    return _text(key) + struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(map(_text, values))
