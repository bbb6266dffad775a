"""nftables commands in this process: libnftables, the library inside `nft`, saves the fork."""

from __future__ import annotations

import ctypes
import functools
import os
import threading

from testbed.errors import TestbedError, UnsupportedError

LIBRARY = "libnftables.so.1"
JSON = 1 << 4
"""NFT_CTX_OUTPUT_JSON"""
_lock = threading.Lock()
_low = [os.open(os.devnull, os.O_RDONLY)]
"""A descriptor kept for the library's socket: it waits with select(), which takes no number from 1024 on, and a lab of
hundreds of nodes has more files open than that."""


@functools.cache
def library() -> ctypes.CDLL:
    """libnftables, its functions declared."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise UnsupportedError(f"no {LIBRARY}: {error}", hint="apt-get install nftables") from error
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_free.argtypes = [ctypes.c_void_p]
    library.nft_ctx_buffer_error.argtypes = [ctypes.c_void_p]
    library.nft_ctx_buffer_output.argtypes = [ctypes.c_void_p]
    library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    library.nft_ctx_get_output_buffer.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_output_buffer.restype = ctypes.c_char_p
    library.nft_ctx_get_error_buffer.argtypes = [ctypes.c_void_p]
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return library


def run(commands: str) -> str:
    """Runs `commands` (the language of nft(8)) in the namespace of the calling thread, all or nothing.

    Returns what they print, as JSON: libnftables-json(5).
    """
    loaded = library()
    with _lock:
        os.close(_low.pop())
        # A context keeps a socket, and that its namespace: it must not outlive the command.
        context = loaded.nft_ctx_new(0)
        try:
            loaded.nft_ctx_buffer_error(context)
            loaded.nft_ctx_buffer_output(context)
            loaded.nft_ctx_output_set_flags(context, JSON)
            if loaded.nft_run_cmd_from_buffer(context, commands.encode()):
                reason = loaded.nft_ctx_get_error_buffer(context).decode(errors="replace").strip()
                raise TestbedError(f"nftables: {reason}")
            return str(loaded.nft_ctx_get_output_buffer(context).decode())
        finally:
            loaded.nft_ctx_free(context)
            _low.append(os.open(os.devnull, os.O_RDONLY))
