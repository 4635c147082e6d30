"""What a user of llama-cpp-python writes: a prompt, tokens back, and here a digest of their logits as JSON.

usage: llama_cpp_prompt.py MODEL
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import sys

import llama_cpp

TOKENS = 8


def main(model: str) -> None:
    """Predict from a prompt of 150 tokens in ubatches of 32, with the KV memory on the host."""
    llama = llama_cpp.Llama(
        model,
        n_gpu_layers=99,
        offload_kqv=False,
        flash_attn=True,
        n_ctx=1024,
        n_batch=1024,
        n_ubatch=32,
        n_threads=1,
        n_threads_batch=1,
        verbose=False,
    )
    prompt = [(i * 37 + 11) % llama.n_vocab() for i in range(150)]
    tokens, digest = [], hashlib.sha256()
    for token in itertools.islice(llama.generate(prompt, top_k=1, temp=0.0), TOKENS):
        tokens.append(token)
        logits = llama_cpp.llama_get_logits_ith(llama.ctx, -1)
        digest.update(ctypes.string_at(logits, 4 * llama.n_vocab()))
    print(json.dumps({"tokens": tokens, "logits_sha256": digest.hexdigest()}))


if __name__ == "__main__":
    main(sys.argv[1])
