/* Preloaded into ranks.
 *
 * A rank that waits for the network sleeps instead of asking UCX again and again: one that has been idle for t sleeps
 * t/16 before it asks again, 2 us to 5 ms, so a wait gets at most a sixteenth longer. On the virtual clock a rank that
 * spins costs what it would have to compute; and with one CPU it keeps its peers from running.
 *
 * MPI_Comm_spawn is an error at once. Open MPI would start the children beside the job, with neither a place on the
 * lab's network nor a log of their own, and wait for them for ever.
 *
 * No headers: the guest has a compiler and no C library's development files. The libraries behind are found by name: a
 * program that loads MPI at run time, as Python does, keeps them to itself, where RTLD_NEXT does not look.
 */
typedef long time_t;
struct timespec { time_t tv_sec; long tv_nsec; };
extern int clock_gettime(int clock, struct timespec *now);
extern int nanosleep(const struct timespec *wanted, struct timespec *left);
extern void *dlopen(const char *name, int flags);
extern void *dlsym(void *handle, const char *name);
#define CLOCK_MONOTONIC 1
#define RTLD_LAZY 1
#define RTLD_NOLOAD 4
#define SHORTEST_NS 2000L
#define LONGEST_NS 5000000L
#define NO_SPAWN "MPI_Comm_spawn is not possible in a job of a lab: start all ranks with mpirun"

static unsigned (*real)(void *worker);
static long idle_since;
static int spawn_error;

static void *function(const char *library, const char *name)
{
    return dlsym(dlopen(library, RTLD_LAZY | RTLD_NOLOAD), name);
}

unsigned ucp_worker_progress(void *worker)
{
    struct timespec now, pause = {0, 0};
    unsigned done;

    if (!real)
        real = (unsigned (*)(void *))function("libucp.so.0", "ucp_worker_progress");
    done = real(worker);
    if (done) {
        idle_since = 0;
        return done;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!idle_since) {
        idle_since = now.tv_sec * 1000000000L + now.tv_nsec;
        return 0;
    }
    pause.tv_nsec = (now.tv_sec * 1000000000L + now.tv_nsec - idle_since) / 16;
    if (pause.tv_nsec < SHORTEST_NS)
        pause.tv_nsec = SHORTEST_NS;
    if (pause.tv_nsec > LONGEST_NS)
        pause.tv_nsec = LONGEST_NS;
    nanosleep(&pause, 0);
    return 0;
}

/* Handles of Open MPI are pointers. An error class of our own has words of our own, in every language. */
static int refuse(void *comm)
{
    int (*add_class)(int *) = (int (*)(int *))function("libmpi.so.40", "MPI_Add_error_class");
    int (*add_string)(int, const char *) = (int (*)(int, const char *))function("libmpi.so.40", "MPI_Add_error_string");
    int (*call_handler)(void *, int) = (int (*)(void *, int))function("libmpi.so.40", "MPI_Comm_call_errhandler");

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
