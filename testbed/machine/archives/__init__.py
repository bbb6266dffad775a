"""Images as files: read against their digests, and written. `boot_image` are those of machines, `container_image` those
of containers; both come as OCI layouts."""
