"""The only package that talks to the kernel: netlink, RDMA devices, namespaces, nftables, IPv6, sysctls, readiness."""
