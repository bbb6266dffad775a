#!/bin/sh
# Starts a rank of a Python program as a job's template does, in which one rank has a GID index of its own:
# start.sh RANK INDEX PROGRAM ARGUMENT...
if [ "$OMPI_COMM_WORLD_RANK" = "$1" ]; then
    export UCX_IB_GID_INDEX="$2"
fi
shift 2
exec python3 -m mpi4py "$@"
