"""Objects of a Kubernetes API server: network definitions, pools, pods and nodes, in the lab's own store."""
