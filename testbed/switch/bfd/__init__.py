"""BFD of a switch: the sessions of RFC 5880, which its ports carry out, as the data plane of FRR's bfdd."""
