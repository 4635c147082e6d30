"""The tiny models of the programs that run vLLM: a configuration, and weights where answers are looked at."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["bytes_model", "model_folder"]


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


def bytes_model(folder: Path) -> Path:
    """Write a model of random weights whose tokens are bytes, with its tokenizer."""
    import torch
    from safetensors.torch import save_file  # type: ignore[import-not-found]
    from tokenizers import (  # type: ignore[import-not-found]
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )

    special = ["<pad>", "<s>", "</s>"]
    words = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    model_folder(folder, vocabulary=len(words), positions=1024, eos=2)
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(about | {"bos_token": "<s>", "eos_token": "</s>"})
    )
    size, chance = 64, torch.Generator().manual_seed(5)
    of_layer = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
    shapes = {"model.embed_tokens": (len(words), size), "lm_head": (len(words), size)}
    shapes |= {f"model.layers.0.{name}": (size, size) for name in of_layer}
    weights = {f"{name}.weight": torch.randn(*s, generator=chance) * 0.3 for name, s in shapes.items()}
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        weights[f"{name}.weight"] = torch.ones(size)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder
