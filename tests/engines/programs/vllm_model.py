"""The tiny model of the programs that run vLLM: a configuration, no weights."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["model_folder"]


def model_folder(folder: Path, *, vocabulary: int, positions: int, eos: int) -> Path:
    """Write the configuration of a model whose weights nobody has."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": eos,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
