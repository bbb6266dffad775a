/* Preloaded into ranks: lets a rank that waits for the network sleep instead of asking UCX again and again.
 *
 * A rank that has been idle for t sleeps t/16 before it asks again, 2 us to 5 ms: a wait gets at most a sixteenth longer.
 * On the virtual clock a rank that spins costs what it would have to compute; and with one CPU it keeps its peers from
 * running. No headers: the guest has a compiler and no C library's development files.
 */
typedef long time_t;
struct timespec { time_t tv_sec; long tv_nsec; };
extern int clock_gettime(int clock, struct timespec *now);
extern int nanosleep(const struct timespec *wanted, struct timespec *left);
extern void *dlsym(void *handle, const char *name);
#define CLOCK_MONOTONIC 1
#define RTLD_NEXT ((void *)-1L)
#define SHORTEST_NS 2000L
#define LONGEST_NS 5000000L

static unsigned (*real)(void *worker);
static long idle_since;

unsigned ucp_worker_progress(void *worker)
{
    struct timespec now, pause = {0, 0};
    unsigned done;

    if (!real)
        real = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
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
