"""The caller of plugins: the part of libcni, and of containerd, Multus and kubelet above it."""
