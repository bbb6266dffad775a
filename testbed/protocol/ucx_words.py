"""UCX's words for the end of a rank, in its output."""

import re

STATUS = {
    "transport retry counter exceeded": "RETRY_EXC_ERR",
    "RNR retry counter exceeded": "RNR_RETRY_EXC_ERR",
    "Work Request Flushed Error": "WR_FLUSH_ERR",
    "remote access error": "REM_ACCESS_ERR",
    "remote operation error": "REM_OP_ERR",
}
"""libibverbs' words for a completion status (ibv_wc_status_str), as UCX prints them, and its name."""
UNREACHED = re.compile(
    r"UD endpoint .* unhandled timeout error|Destination is unreachable|Endpoint timeout"
    r"|network device '.*' is not available.*|ibv_create_ah\(.*\) .* failed: [\w ]+"
)
"""For a peer that is not reached, and for a device or a GID that it cannot use."""
