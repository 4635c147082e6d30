"""Serve this machine's CPU to an RPC client on 127.0.0.1, until killed: ``rpc_server.py LIBRARIES PORT``.

The server is the engine's own, out of the same folder of shared libraries as the client's.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

CPU = 0


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    ggml = ctypes.CDLL(str(folder / "libggml.so"))
    rpc = ctypes.CDLL(str(folder / "libggml-rpc.so"))
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
    devices = (ctypes.c_void_p * 1)(ggml.ggml_backend_dev_by_type(CPU))
    start = rpc.ggml_backend_rpc_start_server
    start.restype = None
    start.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
    start(f"127.0.0.1:{port}".encode(), None, 1, 1, devices)


if __name__ == "__main__":
    main()
