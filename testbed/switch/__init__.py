"""The switch: a kernel data plane, and a control plane of our own that handles ARP as a vendor's system does."""
