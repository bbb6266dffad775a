"""All that speaks to the kernel: netlink, namespaces, RDMA devices, nftables, IPv6, sysctls, waiting for files."""
