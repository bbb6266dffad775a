"""Images as files, checked and written: `boot_image` for machines, `container_image` for containers.
Both come as OCI layouts."""
