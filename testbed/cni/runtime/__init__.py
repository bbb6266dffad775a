"""The caller of plugins: what libcni does, and containerd, Multus and kubelet above it."""
