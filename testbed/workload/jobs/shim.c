/* Preloaded into ranks.
 *
 * A rank that waits for the network sleeps instead of asking UCX again and again: one that has been idle for t sleeps
 * t/16 before it asks again, 2 us to 1 s, so a wait gets at most a sixteenth longer. On the virtual clock a rank that
 * spins costs what it would have to compute; and with one CPU it keeps its peers from running. A longer sleep is one in
 * the kernel until a completion wakes it, for which UCX is told at its beginning that its events are wanted.
 *
 * A thread that waits for a spin lock sleeps, too. UCX resolves a peer's address with its lock held: where that has no
 * answer, the rank's own thread would spin for a second, again and again.
 *
 * MPI_Comm_spawn is an error at once. Open MPI would start the children beside the job, with neither a place on the
 * lab's network nor a log of their own, and wait for them for ever.
 *
 * A process group of PyTorch is freed without the GIL, as by later versions (pull request 154976 of PyTorch). 2.6 has it
 * and waits for the group's thread, which may wait for the GIL to free a tensor: the rank stands still for ever.
 *
 * flight.c, compiled into the same library, records what MPI does.
 */
#include "shim.h"
#define SHORTEST_NS 2000L
#define LONGEST_NS 1000000000L
#define ASLEEP_NS 10000000L /* a pause from which a completion wakes */
#define WAKEUP (1L << 4)   /* UCP_FEATURE_WAKEUP */
#define POLLIN 1
#define NO_SPAWN "MPI_Comm_spawn is not possible in a job of a lab: start all ranks with mpirun"

struct pollfd { int file; short wanted, found; };
extern int pthread_spin_trylock(volatile int *lock);
extern int poll(struct pollfd *of, unsigned long number, int milliseconds);
struct parameters { unsigned long fields, features; }; /* the head of ucp_params_t */

static unsigned (*real)(void *worker);
static long idle_since;
static int spawn_error;

int ucp_init_version(unsigned major, unsigned minor, struct parameters *parameters, void *config, void **context)
{
    int (*init)(unsigned, unsigned, struct parameters *, void *, void **) =
        (int (*)(unsigned, unsigned, struct parameters *, void *, void **))function("libucp.so.0", "ucp_init_version");
    unsigned long features = parameters->features;
    int status;

    parameters->features |= WAKEUP;
    status = init(major, minor, parameters, config, context);
    parameters->features = features;
    return status;
}

/* Sleeps until a worker has something to do, for so many milliseconds at most. */
static void sleep_in_kernel(void *worker, int milliseconds)
{
    static int (*arm)(void *), (*file_of)(void *, int *); /* finding them costs more than all else */
    struct pollfd events = {-1, POLLIN, 0};

    if (!arm) {
        file_of = (int (*)(void *, int *))function("libucp.so.0", "ucp_worker_get_efd");
        arm = (int (*)(void *))function("libucp.so.0", "ucp_worker_arm");
    }
    if (file_of(worker, &events.file) || arm(worker))
        return; /* there is something to do */
    poll(&events, 1, milliseconds);
}

unsigned ucp_worker_progress(void *worker)
{
    struct timespec pause = {0, 0};
    unsigned done;
    long now;

    if (!real)
        real = (unsigned (*)(void *))function("libucp.so.0", "ucp_worker_progress");
    done = real(worker);
    if (done) {
        idle_since = 0;
        return done;
    }
    now = now_ns();
    if (!idle_since) {
        idle_since = now;
        return 0;
    }
    pause.tv_nsec = (now - idle_since) / 16;
    if (pause.tv_nsec < SHORTEST_NS)
        pause.tv_nsec = SHORTEST_NS;
    if (pause.tv_nsec > LONGEST_NS)
        pause.tv_nsec = LONGEST_NS;
    if (pause.tv_nsec < ASLEEP_NS)
        nanosleep(&pause, 0);
    else
        sleep_in_kernel(worker, pause.tv_nsec / 1000000);
    return 0;
}

int pthread_spin_lock(volatile int *lock)
{
    struct timespec pause = {0, SHORTEST_NS};

    for (; pthread_spin_trylock(lock); pause.tv_nsec += pause.tv_nsec / 16)
        nanosleep(&pause, 0);
    return 0;
}

/* Handles of Open MPI are pointers. An error class of our own has words of our own, in every language. */
static int refuse(void *comm)
{
    int (*add_class)(int *) = (int (*)(int *))function(MPI, "MPI_Add_error_class");
    int (*add_string)(int, const char *) = (int (*)(int, const char *))function(MPI, "MPI_Add_error_string");
    int (*call_handler)(void *, int) = (int (*)(void *, int))function(MPI, "MPI_Comm_call_errhandler");

    if (!spawn_error) {
        add_class(&spawn_error);
        add_string(spawn_error, NO_SPAWN);
    }
    call_handler(comm, spawn_error);
    return spawn_error;
}

int MPI_Comm_spawn(const char *command, char **argv, int maxprocs, void *info, int root, void *comm, void *intercomm,
                   int *errcodes)
{
    return refuse(comm);
}

int MPI_Comm_spawn_multiple(int count, char **commands, char ***argvs, const int *maxprocs, void *infos, int root,
                            void *comm, void *intercomm, int *errcodes)
{
    return refuse(comm);
}

/* c10d::ProcessGroup::~ProcessGroup() */
void _ZN4c10d12ProcessGroupD1Ev(void *group)
{
    struct library torch;
    void (*destroy)(void *);
    int (*has_gil)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    void *thread = 0;

    dladdr(__builtin_return_address(0), &torch); /* the caller is there */
    destroy = (void (*)(void *))function(torch.name, __func__);
    if (has_gil && has_gil())
        thread = ((void *(*)(void))dlsym(RTLD_DEFAULT, "PyEval_SaveThread"))();
    destroy(group);
    if (thread)
        ((void (*)(void *))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"))(thread);
}
