"""The only package that speaks to the kernel: netlink, RDMA devices, namespaces, nftables, IPv6, sysctls, readiness."""
