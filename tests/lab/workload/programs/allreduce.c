/* What allreduce.py does, in C: an Allreduce, then the end that the argument says. The guest has Open MPI's library and
 * none of its headers, and no C library's start files, so what is used of both is declared here.
 */
typedef struct opaque *Handle;
extern struct opaque ompi_mpi_comm_world, ompi_mpi_double, ompi_mpi_op_sum, ompi_mpi_info_null;
extern int MPI_Init(int *argc, char ***argv);
extern int MPI_Finalize(void);
extern int MPI_Comm_rank(Handle comm, int *rank);
extern int MPI_Comm_size(Handle comm, int *size);
extern int MPI_Abort(Handle comm, int status);
extern int MPI_Allreduce(const void *in, void *out, int count, Handle type, Handle op, Handle comm);
extern int MPI_Comm_spawn(const char *command, char **argv, int count, Handle info, int root, Handle comm,
                          Handle *children, int *statuses);
extern int printf(const char *format, ...);
extern int strcmp(const char *one, const char *other);
extern void exit(int status);
extern int gethostname(char *name, unsigned long size);
extern int __libc_start_main(int (*main)(int, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                             void (*loader)(void), void *stack);

int main(int argc, char **argv)
{
    static double in[1000], out[1000];
    const char *way = argc > 1 ? argv[1] : "";
    Handle children;
    char host[64];
    int rank, size, i;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(&ompi_mpi_comm_world, &rank);
    MPI_Comm_size(&ompi_mpi_comm_world, &size);
    gethostname(host, sizeof host);
    if (!strcmp(way, "spawns"))
        MPI_Comm_spawn("hostname", 0, 1, &ompi_mpi_info_null, 0, &ompi_mpi_comm_world, &children, 0);
    if (rank == 1 && !strcmp(way, "exits"))
        exit(3);
    if (rank == 1 && !strcmp(way, "crashes"))
        *(volatile int *)0 = 0;
    if (rank == 1 && !strcmp(way, "aborts"))
        MPI_Abort(&ompi_mpi_comm_world, 4);
    for (i = 0; i < 1000; i++)
        in[i] = rank + 1;
    MPI_Allreduce(in, out, 1000, &ompi_mpi_double, &ompi_mpi_op_sum, &ompi_mpi_comm_world);
    printf("sum %.1f of %d on %s\n", out[999], size, host);
    MPI_Finalize();
    return 0;
}

__asm__(".globl _start\n_start:\nxor %ebp, %ebp\nmov (%rsp), %rdi\nlea 8(%rsp), %rsi\nand $-16, %rsp\ncall begin\n");

void begin(long argc, char **argv)
{
    __libc_start_main(main, argc, argv, 0, 0, 0, argv);
}
