"""Traffic: verbs endpoints, RDMA counters, and the tools of perftest and librdmacm as they are."""
