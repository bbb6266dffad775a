/* The flight recorder of a rank: the collectives of MPI and its calls between two ranks, as a program makes them, each
 * with the times at which it begins and returns. It stands between program and library, as MPI's profiling interface
 * has it: MPI_Allreduce here calls PMPI_Allreduce there.
 *
 * The records are a ring in flight-<rank>.bin of the job's directory, which is mapped: a rank that is killed leaves
 * it, with the call in which it was. A record costs two readings of the clock and no system call. Two threads that
 * call MPI in the same instant may take one record. recorder.py reads the file.
 */
#include "shim.h"
extern char *getenv(const char *name);
extern int snprintf(char *text, unsigned long size, const char *format, ...);
extern int open(const char *path, int flags, ...);
extern int close(int file);
extern int ftruncate(int file, long length);
extern void *mmap(void *place, unsigned long length, int protection, int flags, int file, long offset);
#define RTLD_DEFAULT ((void *)0)
#define O_RDWR_CREAT_CLOEXEC (2 | 0100 | 02000000)
#define PROT_READ_WRITE 3
#define MAP_SHARED 1
#define IN_PLACE ((void *)1)
#define CALLS 2048
#define GROUPS 64
#define MEMBERS 62
#define NOBODY -1
typedef void *Comm, *Type, *Op, *Group, *Request, *Message, *Status;
typedef const void *In;
typedef void *Out;

struct call {
    long number, began_ns, ended_ns, bytes, sequence;
    int group, peer;
    char operation[24];
};

/* `members` are ranks of the job, in the communicator's order: as many as there is room for. */
struct group { int size, collectives, members[MEMBERS]; };

/* `gid` is 1 + the index of the GID that UCX was told to use, 0 where it was told none. */
struct flight {
    long calls;
    int groups, gid;
    struct group group[GROUPS];
    struct call call[CALLS];
};

static struct flight *flight;
static int closed;
static Comm communicators[GROUPS];
static struct call nowhere;

static int gid_told(void)
{
    const char *text = getenv("UCX_IB_GID_INDEX");
    int index = 0;

    if (!text || !*text)
        return 0;
    for (; *text >= '0' && *text <= '9' && index < 1 << 16; text++)
        index = 10 * index + *text - '0';
    return *text ? 0 : index + 1;
}

/* Whether there is a file to record into, which is made for the first call. */
static int recording(void)
{
    const char *directory, *rank;
    char path[4096];
    void *place;
    int file;

    if (flight || closed)
        return !closed;
    closed = 1;
    directory = getenv("TESTBED_RANKS");
    rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!directory || !rank)
        return 0;
    snprintf(path, sizeof path, "%s/flight-%s.bin", directory, rank);
    file = open(path, O_RDWR_CREAT_CLOEXEC, 0644);
    if (file < 0)
        return 0;
    if (!ftruncate(file, sizeof *flight)) {
        place = mmap(0, sizeof *flight, PROT_READ_WRITE, MAP_SHARED, file, 0);
        closed = place == (void *)-1;
        flight = closed ? 0 : place;
        if (flight)
            flight->gid = gid_told();
    }
    close(file);
    return !closed;
}

static Comm world(void)
{
    return object("ompi_mpi_comm_world");
}

/* The number of a communicator's group, -1 for one that has none. It is found out at the first call. */
static int group_of(Comm comm)
{
    int (*of)(Comm, Group *) = (int (*)(Comm, Group *))function(MPI, "PMPI_Comm_group");
    int (*size)(Group, int *) = (int (*)(Group, int *))function(MPI, "PMPI_Group_size");
    int (*drop)(Group *) = (int (*)(Group *))function(MPI, "PMPI_Group_free");
    int (*translate)(Group, int, const int *, Group, int *) =
        (int (*)(Group, int, const int *, Group, int *))function(MPI, "PMPI_Group_translate_ranks");
    int ranks[MEMBERS], known;
    Group all, these;
    struct group *group;

    if (flight->groups == GROUPS || !comm || comm == object("ompi_mpi_comm_null"))
        return NOBODY;
    group = &flight->group[flight->groups];
    of(world(), &all);
    of(comm, &these);
    size(these, &group->size);
    known = group->size < MEMBERS ? group->size : MEMBERS;
    for (int i = 0; i < known; i++)
        ranks[i] = i;
    translate(these, known, ranks, all, group->members);
    drop(&these);
    drop(&all);
    communicators[flight->groups] = comm;
    return flight->groups++;
}

static int number_of(Comm comm)
{
    for (int i = 0; i < flight->groups; i++)
        if (communicators[i] == comm)
            return i;
    return group_of(comm);
}

static long bytes(long count, Type type)
{
    static int (*size_of)(Type, int *);
    int size = 0;

    if (!type || !recording())
        return 0;
    if (!size_of)
        size_of = (int (*)(Type, int *))function(MPI, "PMPI_Type_size");
    size_of(type, &size);
    return count * size;
}

static long sum(const int *counts, Comm comm)
{
    long found = 0;
    int group = recording() ? number_of(comm) : NOBODY;

    for (int i = 0; group >= 0 && i < flight->group[group].size; i++)
        found += counts[i];
    return found;
}

static struct call *begin(const char *operation, int collective, long bytes, Comm comm, int peer)
{
    struct call *call;
    int i;

    if (!recording())
        return &nowhere;
    call = &flight->call[flight->calls % CALLS];
    call->ended_ns = 0;
    call->bytes = bytes;
    call->group = comm ? number_of(comm) : NOBODY;
    call->sequence = collective && call->group >= 0 ? ++flight->group[call->group].collectives : 0;
    call->peer = peer;
    for (i = 0; operation[i] && i < sizeof call->operation - 1; i++)
        call->operation[i] = operation[i];
    call->operation[i] = 0;
    call->began_ns = now_ns();
    call->number = ++flight->calls;
    return call;
}

#define RECORD(name, ...) RECORD_AS(MPI_##name, name, __VA_ARGS__)
#define RECORD_AS(symbol, name, collective, bytes, comm, peer, parameters, arguments) \
    int symbol parameters \
    { \
        static int (*real) parameters; \
        struct call *call; \
        int status; \
\
        if (!real) \
            real = (int (*) parameters)function(MPI, "PMPI_" #name); \
        call = begin(#name, collective, bytes, comm, peer); \
        status = real arguments; \
        call->ended_ns = now_ns(); \
        return status; \
    }
/* A collective, and the one that returns at once. */
#define COLLECTIVE(name, small, bytes, peer, parameters, arguments) \
    RECORD(name, 1, bytes, comm, peer, (parameters), (arguments)) \
    RECORD(I##small, 1, bytes, comm, peer, (parameters, Request *request), (arguments, request))
#define P(...) __VA_ARGS__

COLLECTIVE(Barrier, barrier, 0, NOBODY, P(Comm comm), P(comm))
/* MPI_Bcast is in orders.c. */
RECORD_AS(testbed_Bcast, Bcast, 1, bytes(n, type), comm, root, (Out data, int n, Type type, int root, Comm comm),
          (data, n, type, root, comm))
RECORD(Ibcast, 1, bytes(n, type), comm, root,
       (Out data, int n, Type type, int root, Comm comm, Request *request), (data, n, type, root, comm, request))
COLLECTIVE(Reduce, reduce, bytes(n, type), root, P(In in, Out out, int n, Type type, Op op, int root, Comm comm),
           P(in, out, n, type, op, root, comm))
#define REDUCTION(name, small) \
    COLLECTIVE(name, small, bytes(n, type), NOBODY, P(In in, Out out, int n, Type type, Op op, Comm comm), \
               P(in, out, n, type, op, comm))
REDUCTION(Allreduce, allreduce)
REDUCTION(Reduce_scatter_block, reduce_scatter_block)
REDUCTION(Scan, scan)
REDUCTION(Exscan, exscan)
COLLECTIVE(Reduce_scatter, reduce_scatter, bytes(sum(counts, comm), type), NOBODY,
           P(In in, Out out, const int *counts, Type type, Op op, Comm comm), P(in, out, counts, type, op, comm))
COLLECTIVE(Gather, gather, in == IN_PLACE ? bytes(m, to) : bytes(n, type), root,
           P(In in, int n, Type type, Out out, int m, Type to, int root, Comm comm),
           P(in, n, type, out, m, to, root, comm))
COLLECTIVE(Gatherv, gatherv, in == IN_PLACE ? 0 : bytes(n, type), root,
           P(In in, int n, Type type, Out out, const int *m, const int *at, Type to, int root, Comm comm),
           P(in, n, type, out, m, at, to, root, comm))
COLLECTIVE(Scatter, scatter, out == IN_PLACE ? bytes(n, type) : bytes(m, to), root,
           P(In in, int n, Type type, Out out, int m, Type to, int root, Comm comm),
           P(in, n, type, out, m, to, root, comm))
COLLECTIVE(Scatterv, scatterv, out == IN_PLACE ? 0 : bytes(m, to), root,
           P(In in, const int *n, const int *at, Type type, Out out, int m, Type to, int root, Comm comm),
           P(in, n, at, type, out, m, to, root, comm))
COLLECTIVE(Allgather, allgather, bytes(m, to), NOBODY,
           P(In in, int n, Type type, Out out, int m, Type to, Comm comm), P(in, n, type, out, m, to, comm))
COLLECTIVE(Allgatherv, allgatherv, bytes(sum(m, comm), to), NOBODY,
           P(In in, int n, Type type, Out out, const int *m, const int *at, Type to, Comm comm),
           P(in, n, type, out, m, at, to, comm))
COLLECTIVE(Alltoall, alltoall, bytes(m, to), NOBODY,
           P(In in, int n, Type type, Out out, int m, Type to, Comm comm), P(in, n, type, out, m, to, comm))
COLLECTIVE(Alltoallv, alltoallv, bytes(sum(m, comm), to), NOBODY,
           P(In in, const int *n, const int *from, Type type, Out out, const int *m, const int *at, Type to, Comm comm),
           P(in, n, from, type, out, m, at, to, comm))

#define SENDING(name, extra, argument) \
    RECORD(name, 0, bytes(n, type), comm, to, (In data, int n, Type type, int to, int tag, Comm comm extra), \
           (data, n, type, to, tag, comm argument))
SENDING(Send, , )
SENDING(Ssend, , )
SENDING(Isend, P(, Request *request), P(, request))
RECORD(Recv, 0, bytes(n, type), comm, of, (Out data, int n, Type type, int of, int tag, Comm comm, Status status_),
       (data, n, type, of, tag, comm, status_))
RECORD(Irecv, 0, bytes(n, type), comm, of, (Out data, int n, Type type, int of, int tag, Comm comm, Request *request),
       (data, n, type, of, tag, comm, request))
RECORD(Sendrecv, 0, bytes(n, type), comm, of,
       (In in, int n, Type type, int to, int tag, Out out, int m, Type as, int of, int with, Comm comm, Status status_),
       (in, n, type, to, tag, out, m, as, of, with, comm, status_))
RECORD(Probe, 0, 0, comm, of, (int of, int tag, Comm comm, Status status_), (of, tag, comm, status_))
RECORD(Mprobe, 0, 0, comm, of, (int of, int tag, Comm comm, Message *message, Status status_),
       (of, tag, comm, message, status_))
RECORD(Mrecv, 0, bytes(n, type), 0, NOBODY, (Out data, int n, Type type, Message *message, Status status_),
       (data, n, type, message, status_))
RECORD(Wait, 0, 0, 0, NOBODY, (Request *request, Status status_), (request, status_))
RECORD(Waitall, 0, 0, 0, NOBODY, (int n, Request *requests, Status statuses), (n, requests, statuses))
RECORD(Waitany, 0, 0, 0, NOBODY, (int n, Request *requests, int *which, Status status_), (n, requests, which, status_))

RECORD(Comm_dup, 1, 0, comm, NOBODY, (Comm comm, Comm *made), (comm, made))
RECORD(Comm_create, 1, 0, comm, NOBODY, (Comm comm, Group group, Comm *made), (comm, group, made))
RECORD(Comm_split, 1, 0, comm, NOBODY, (Comm comm, int colour, int key, Comm *made), (comm, colour, key, made))
RECORD(Finalize, 1, 0, world(), NOBODY, (void), ())

/* The library may give the next communicator the same place. */
int MPI_Comm_free(Comm *comm)
{
    int (*real)(Comm *) = (int (*)(Comm *))function(MPI, "PMPI_Comm_free");

    for (int i = 0; flight && i < flight->groups; i++)
        if (communicators[i] == *comm)
            communicators[i] = 0;
    return real(comm);
}
