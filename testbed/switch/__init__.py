"""The switch: a kernel data plane, and a control plane of ours that owns ARP the way a vendor's system does."""
