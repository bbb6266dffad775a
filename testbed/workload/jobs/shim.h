/* What is preloaded into ranks uses of libc, and how it finds libraries behind itself. No headers: the guest has a
 * compiler and no C library's development files. A program that loads MPI at run time, as Python does, keeps it to
 * itself, where RTLD_NEXT does not look, so a library is found by its name.
 */
typedef long time_t;
struct timespec { time_t tv_sec; long tv_nsec; };
struct library { const char *name; void *base; const char *symbol; void *address; };
extern int clock_gettime(int clock, struct timespec *now);
extern int nanosleep(const struct timespec *wanted, struct timespec *left);
extern void *dlopen(const char *name, int flags);
extern void *dlsym(void *handle, const char *name);
extern int dladdr(const void *address, struct library *found);
#define CLOCK_MONOTONIC 1
#define RTLD_DEFAULT ((void *)0)
#define RTLD_LAZY 1
#define RTLD_NOLOAD 4
#define MPI "libmpi.so.40"

static void *function(const char *library, const char *name)
{
    return dlsym(dlopen(library, RTLD_LAZY | RTLD_NOLOAD), name);
}

/* An object of MPI. A program that is linked with the library may have it in itself, by a copy relocation. */
static void *object(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    return found ? found : function(MPI, name);
}

static long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}
