"""Run one prompt through a prebuilt llama.cpp (shared libraries) and print what came out as a line of JSON.

Like ``llama_prompt.py``, for builds that come as ``libllama`` and ``libggml`` with their backends as separate
libraries, such as Vulkan's::

    python llama_library.py --libraries DIR --model model.gguf --prompt-tokens 20
    python llama_library.py --package xllamacpp --model model.gguf --prompt-tokens 20

Backends of a folder are loaded the way llama.cpp's own tools load them, so ``GGML_BACKEND_PATH`` counts. Of a
Python package it is the library inside that runs. The line holds ``tokens`` (ids), ``logits_sha256`` (of all
logits that chose one, to the last bit), ``devices`` (names) and how long it took.

The parameter structs of ``llama.h`` change from build to build. They are passed as oversized blobs that the
library fills with its defaults, and fields are found by the pattern of those defaults. That is safe where
structs of this size are returned and passed through memory: x86-64 System V.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib
import json
import struct
import sys
import time
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_size_t, c_ubyte, c_void_p
from pathlib import Path
from typing import Any

__all__ = ["main"]

BLOB_BYTES = 1024
CONTEXT_TOKENS = 1024
FLASH_ATTENTION_ON = 1
FIRST_DEFAULTS = (512, 2048, 512)  # n_ctx, n_batch, n_ubatch
THREADS_DEFAULTS = (4, 4)  # n_threads, n_threads_batch
ENUMS_DEFAULTS = (-1, -1, -1, -1)  # rope scaling, pooling, attention, flash attention
SWITCHES_DEFAULTS = (
    b"\x00\x01\x01\x01\x01\x00"  # embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified
)
GPU_LAYERS_OFFSET_BYTES = 16  # of the model parameters, after two pointers


class Blob(ctypes.Structure):
    """A parameter struct of unknown layout."""

    _fields_ = (("data", c_ubyte * BLOB_BYTES),)

    def words(self, count: int = 64) -> tuple[int, ...]:
        """Return its first 32-bit words."""
        return struct.unpack_from(f"<{count}i", bytes(self.data))

    def put(self, offset_bytes: int, layout: str, value: int | bool) -> None:
        """Overwrite one field."""
        struct.pack_into(layout, self.data, offset_bytes, value)


class Batch(ctypes.Structure):
    """``llama_batch``, unchanged since 2024."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    )


class LayoutError(Exception):
    """This build's structs do not look as expected."""


def main(arguments: list[str] | None = None) -> int:
    """Run the prompt; return 0, or 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (LayoutError, OSError) as error:
        print(f"cannot run this build: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.package:
        llama = ggml = _packaged(options.package)
    else:
        llama = ctypes.CDLL(str(_library(options.libraries, "libllama")))
        ggml = ctypes.CDLL(str(_library(options.libraries, "libggml")))

    log_callback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
    silence = log_callback(lambda level, text, user_data: None)
    if not options.verbose:
        _function(llama, "llama_log_set", None, log_callback, c_void_p)(silence, None)
    if options.libraries:
        _function(ggml, "ggml_backend_load_all_from_path", None, c_char_p)(str(options.libraries).encode())
    if options.rpc:
        _add_server(ggml, options.rpc)
    _function(llama, "llama_backend_init", None)()

    load_start = time.perf_counter()
    model = _function(llama, "llama_model_load_from_file", c_void_p, c_char_p, Blob)(
        options.model.encode(), _model_params(llama, options)
    )
    if not model:
        print("the engine refused the model", file=sys.stderr)
        return 1
    context = _function(llama, "llama_init_from_model", c_void_p, c_void_p, Blob)(
        model, _context_params(llama, options)
    )
    if not context:
        print("the engine refused the context", file=sys.stderr)
        return 1
    load_seconds = time.perf_counter() - load_start

    start, cpu_start = time.perf_counter(), time.process_time()
    tokens, logits_sha256 = _predict(llama, model, context, options)
    result = {
        "tokens": tokens,
        "logits_sha256": logits_sha256,
        "devices": _devices(ggml),
        "load_seconds": round(load_seconds, 3),
        "seconds": round(time.perf_counter() - start, 3),
        "cpu_seconds": round(time.process_time() - cpu_start, 4),
    }
    # One write: threads of one process may print at once, and print() writes the newline by itself.
    print(json.dumps(result) + "\n", end="", flush=True)
    _function(llama, "llama_free", None, c_void_p)(context)
    _function(llama, "llama_model_free", None, c_void_p)(model)
    return 0


def _predict(llama: Any, model: int, context: int, options: argparse.Namespace) -> tuple[list[int], str]:
    """Return the tokens, and the digest of the logits that chose them."""
    vocabulary = _function(llama, "llama_model_get_vocab", c_void_p, c_void_p)(model)
    vocabulary_tokens = _function(llama, "llama_vocab_n_tokens", c_int32, c_void_p)(vocabulary)
    get_batch = _function(llama, "llama_batch_get_one", Batch, POINTER(c_int32), c_int32)
    decode = _function(llama, "llama_decode", c_int32, c_void_p, Batch)
    get_logits = _function(llama, "llama_get_logits_ith", POINTER(c_float), c_void_p, c_int32)
    tokens: list[int] = []
    digest = hashlib.sha256()
    batch = [(i * 37 + 11) % min(vocabulary_tokens, 512) for i in range(options.prompt_tokens)]
    for _ in range(options.n_predict):
        array = (c_int32 * len(batch))(*batch)
        if decode(context, get_batch(array, len(batch))):
            raise OSError("llama_decode failed")
        logits = get_logits(context, -1)[:vocabulary_tokens]
        digest.update(struct.pack(f"<{vocabulary_tokens}f", *logits))
        batch = [max(range(vocabulary_tokens), key=logits.__getitem__)]
        tokens += batch
    return tokens, digest.hexdigest()


def _model_params(llama: Any, options: argparse.Namespace) -> Blob:
    params: Blob = _function(llama, "llama_model_default_params", Blob)()
    params.put(GPU_LAYERS_OFFSET_BYTES, "<i", options.gpu_layers)
    return params


def _context_params(llama: Any, options: argparse.Namespace) -> Blob:
    params: Blob = _function(llama, "llama_context_default_params", Blob)()
    words = params.words()
    if words[:3] != FIRST_DEFAULTS:
        raise LayoutError(f"context parameters begin with {words[:3]}, expected {FIRST_DEFAULTS}")
    threads = _index(words, THREADS_DEFAULTS, "number of threads")
    enums = _index(words, ENUMS_DEFAULTS, "enumerations")
    switches = bytes(params.data).find(SWITCHES_DEFAULTS, 4 * (enums + len(ENUMS_DEFAULTS)))
    if switches < 0:
        raise LayoutError("context parameters: switches not found")
    for word, value in (
        (0, CONTEXT_TOKENS),
        (1, CONTEXT_TOKENS),
        (2, options.ubatch),
        (threads, options.threads),
        (threads + 1, options.threads),
        (enums + 3, FLASH_ATTENTION_ON),
    ):
        params.put(4 * word, "<i", value)
    params.put(switches + 1, "<?", not options.kv_host)
    return params


def _index(words: tuple[int, ...], pattern: tuple[int, ...], what: str) -> int:
    """Return where the pattern begins."""
    for index in range(3, 20):
        if words[index : index + len(pattern)] == pattern:
            return index
    raise LayoutError(f"context parameters: {what} not found among {words[:20]}")


def _devices(ggml: Any) -> list[str]:
    count = _function(ggml, "ggml_backend_dev_count", c_size_t)()
    get = _function(ggml, "ggml_backend_dev_get", c_void_p, c_size_t)
    name = _function(ggml, "ggml_backend_dev_name", c_char_p, c_void_p)
    return [name(get(index)).decode() for index in range(count)]


def _add_server(ggml: Any, endpoint: str) -> None:
    """Register the devices of an RPC server, as llama.cpp's tools do for ``--rpc``."""
    registry = _function(ggml, "ggml_backend_reg_by_name", c_void_p, c_char_p)(b"RPC")
    if not registry:
        raise LayoutError("no RPC backend")
    find = _function(ggml, "ggml_backend_reg_get_proc_address", c_void_p, c_void_p, c_char_p)
    add = ctypes.CFUNCTYPE(c_void_p, c_char_p)(find(registry, b"ggml_backend_rpc_add_server"))
    server = add(endpoint.encode())
    if not server:
        raise OSError(f"no RPC server at {endpoint}")
    _function(ggml, "ggml_backend_register", None, c_void_p)(server)


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = library[name]
    except AttributeError as error:
        raise LayoutError(f"no function {name}") from error
    function.restype = result
    function.argtypes = arguments
    return function


def _packaged(name: str) -> Any:
    """Return the library inside of a Python package, through which it reaches llama.cpp and ggml."""
    module = importlib.import_module(f"{name}.{name}")
    return module._lib if name == "llama_cpp" else ctypes.CDLL(module.__file__)


def _library(folder: Path, name: str) -> Path:
    """Return ``libllama.so``, or under the longer names that some packages give it."""
    found = sorted(path for path in folder.glob(f"{name}.*so*") if path.name.startswith(f"{name}."))
    if not found:
        raise OSError(f"no {name} in the folder of the libraries")
    return found[0]


def _folder(text: str) -> Path:
    return Path(text).absolute()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--libraries", type=_folder, help="their folder")
    source.add_argument("--package", choices=("xllamacpp", "llama_cpp"), help="or the package that has one")
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--prompt-tokens", type=int, default=20, help="so many tokens of a fixed series")
    parser.add_argument("--n-predict", type=int, default=8, help="tokens to predict, greedily")
    parser.add_argument("--ubatch", type=int, default=32, help="tokens per ubatch")
    parser.add_argument("--gpu-layers", type=int, default=99, help="layers on devices; 0 = all on the CPU")
    parser.add_argument("--kv-host", action="store_true", help="keep KV and recurrent state in host memory")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--rpc", metavar="HOST:PORT", help="add the devices of this RPC server")
    parser.add_argument("--verbose", action="store_true", help="let the engine write its log")
    return parser


if __name__ == "__main__":
    sys.exit(main())
