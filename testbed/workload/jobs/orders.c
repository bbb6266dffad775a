/* Collectives that PyTorch's process group of MPI has no call for. process_group.py lets the group broadcast an order, a
 * tensor that tells what to call; the group's thread calls MPI_Bcast with it, in its turn, and the call is made here.
 */
#include "shim.h"
#define WORDS 8
#define MAGIC 0x2164656274736574L /* testbed! */
typedef void *Comm, *Type, *Op;

struct order {
    long magic;
    struct order *self;
    long operation;
    const void *in;
    void *out;
    long count, type, op;
};
enum { REDUCE_SCATTER, ALLGATHER };

extern int testbed_Bcast(void *data, int n, Type type, int root, Comm comm);
extern int MPI_Reduce_scatter_block(const void *in, void *out, int n, Type type, Op op, Comm comm);
extern int MPI_Allgather(const void *in, int n, Type type, void *out, int m, Type to, Comm comm);

/* Objects of MPI, and their places once they are found: that takes a millisecond. */
struct named { const char *name; void *place; };
static struct named word = {"ompi_mpi_long"};
static struct named types[] = {
    {"ompi_mpi_float"}, {"ompi_mpi_double"}, {"ompi_mpi_long"}, {"ompi_mpi_int"}, {"ompi_mpi_short"},
    {"ompi_mpi_signed_char"}, {"ompi_mpi_unsigned_char"},
};
static struct named ops[] = {{"ompi_mpi_op_sum"}, {"ompi_mpi_op_prod"}, {"ompi_mpi_op_min"}, {"ompi_mpi_op_max"}};

static void *found(struct named *named)
{
    if (!named->place)
        named->place = object(named->name);
    return named->place;
}

int MPI_Bcast(void *data, int n, Type type, int root, Comm comm)
{
    const struct order *order = data;

    if (n != WORDS || type != found(&word) || order->magic != MAGIC || order->self != order)
        return testbed_Bcast(data, n, type, root, comm);
    type = found(&types[order->type]);
    if (order->operation == REDUCE_SCATTER)
        return MPI_Reduce_scatter_block(order->in, order->out, order->count, type, found(&ops[order->op]), comm);
    return MPI_Allgather(order->in, order->count, type, order->out, order->count, type, comm);
}
