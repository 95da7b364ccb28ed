/* Another date for a run of tests: preloaded into every process of it (`dates.py`).
 *
 * RTRL_CLOCK is "AHEAD BEGAN": the time of day is AHEAD seconds later than it is; the run began at BEGAN, true
 * nanoseconds since 1970. Monotonic clocks and time-outs are left alone; a wait until a time of day ends when
 * that comes on the moved clock.
 *
 * Times of files go along where a file was made or touched since BEGAN, which its ctime tells and nobody can
 * set: what the tests write is of today, as they see it, and what is set is read back. All other files keep
 * their times, so compiled modules stay valid, and look as old as the date makes them.
 *
 * Not moved: static programs, what is started without the environment, /proc.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "written for 64-bit Linux, where the kernel's struct stat is the C library's"
#endif

enum { BILLION = 1000000000 }; /* no monotonic clock has run for so many seconds */

static int64_t ahead, began;

__attribute__((constructor)) static void begin(void) {
    const char *told = getenv("RTRL_CLOCK");
    char *rest = NULL;
    if (!told) return;
    int64_t seconds = strtoll(told, &rest, 10);
    began = strtoll(rest, NULL, 10);
    ahead = seconds;
}

#define NEXT(name)                                                       \
    ({                                                                   \
        static __typeof__(&name) found;                                  \
        if (!found) *(void **)&found = dlsym(RTLD_NEXT, #name);          \
        found;                                                           \
    })

/* The time of day */

static int of_day(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI || clock == CLOCK_REALTIME_ALARM;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int status = NEXT(clock_gettime)(clock, at);
    if (status == 0 && of_day(clock)) at->tv_sec += ahead;
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int status = NEXT(gettimeofday)(at, zone);
    if (status == 0) at->tv_sec += ahead;
    return status;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
    int found = NEXT(timespec_get)(at, base);
    if (found == TIME_UTC) at->tv_sec += ahead;
    return found;
}

/* Nobody sets the machine's clock by this one: a test that puts back what it reads would move it, where it may. */

int clock_settime(clockid_t clock, const struct timespec *at) {
    if (!of_day(clock)) return NEXT(clock_settime)(clock, at);
    errno = EPERM;
    return -1;
}

int settimeofday(const struct timeval *at, const struct timezone *zone) {
    (void)at, (void)zone;
    errno = EPERM;
    return -1;
}

/* Waits until a time of day */

static struct timespec due(int moved, const struct timespec *until) {
    struct timespec at = *until;
    if (moved) at.tv_sec = at.tv_sec > ahead ? at.tv_sec - ahead : 0;
    return at;
}

/* Where the call does not say of which clock its time is. */
static int looks_of_day(const struct timespec *until) { return until->tv_sec > BILLION; }

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec at = due((flags & TIMER_ABSTIME) && of_day(clock), until);
    return NEXT(clock_nanosleep)(clock, flags, &at, left);
}

int sem_timedwait(sem_t *restrict one, const struct timespec *restrict until) {
    struct timespec at = due(1, until);
    return NEXT(sem_timedwait)(one, &at);
}

int sem_clockwait(sem_t *restrict one, clockid_t clock, const struct timespec *restrict until) {
    struct timespec at = due(of_day(clock), until);
    return NEXT(sem_clockwait)(one, clock, &at);
}

int pthread_cond_timedwait(pthread_cond_t *restrict one, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict until) {
    static int (*found)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* On x86-64 there is an older one for an older pthread_cond_t, and dlsym may give that. */
    if (!found) *(void **)&found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!found) *(void **)&found = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec at = due(looks_of_day(until), until);
    return found(one, lock, &at);
}

int pthread_cond_clockwait(pthread_cond_t *restrict one, pthread_mutex_t *restrict lock, clockid_t clock,
                           const struct timespec *restrict until) {
    struct timespec at = due(of_day(clock), until);
    return NEXT(pthread_cond_clockwait)(one, lock, clock, &at);
}

int cnd_timedwait(cnd_t *restrict one, mtx_t *restrict lock, const struct timespec *restrict until) {
    struct timespec at = due(1, until);
    return NEXT(cnd_timedwait)(one, lock, &at);
}

#define TIMED(name, type)                                                \
    int name(type *restrict one, const struct timespec *restrict until) { \
        struct timespec at = due(1, until);                              \
        return NEXT(name)(one, &at);                                     \
    }
TIMED(pthread_mutex_timedlock, pthread_mutex_t)
TIMED(pthread_rwlock_timedrdlock, pthread_rwlock_t)
TIMED(pthread_rwlock_timedwrlock, pthread_rwlock_t)
TIMED(mtx_timedlock, mtx_t)

#define CLOCKED(name, type)                                                               \
    int name(type *restrict one, clockid_t clock, const struct timespec *restrict until) { \
        struct timespec at = due(of_day(clock), until);                                   \
        return NEXT(name)(one, clock, &at);                                               \
    }
CLOCKED(pthread_mutex_clocklock, pthread_mutex_t)
CLOCKED(pthread_rwlock_clockrdlock, pthread_rwlock_t)
CLOCKED(pthread_rwlock_clockwrlock, pthread_rwlock_t)

#define TIMER(name, type, absolute)                                                                            \
    int name(type one, int flags, const struct itimerspec *restrict set, struct itimerspec *restrict before) { \
        struct itimerspec at = *set;                                                                           \
        at.it_value = due((flags & (absolute)) && looks_of_day(&set->it_value), &set->it_value);               \
        return NEXT(name)(one, flags, &at, before);                                                            \
    }
TIMER(timer_settime, timer_t, TIMER_ABSTIME)
TIMER(timerfd_settime, int, TFD_TIMER_ABSTIME)

/* The times of files, read */

static int touched(int64_t seconds, int64_t nanoseconds) { return seconds * BILLION + nanoseconds >= began; }

static int read_back(long status, struct stat *of) {
    if (status == 0 && touched(of->st_ctim.tv_sec, of->st_ctim.tv_nsec)) {
        of->st_atim.tv_sec += ahead;
        of->st_mtim.tv_sec += ahead;
        of->st_ctim.tv_sec += ahead;
    }
    return (int)status;
}

static int look(int folder, const char *path, void *of, int flags) {
    return read_back(syscall(SYS_newfstatat, folder, path, of, flags), of);
}

static int look_at_open(int file, void *of) { return read_back(syscall(SYS_fstat, file, of), of); }

int stat(const char *restrict path, struct stat *restrict of) { return look(AT_FDCWD, path, of, 0); }
int stat64(const char *restrict path, struct stat64 *restrict of) { return look(AT_FDCWD, path, of, 0); }
int lstat(const char *restrict path, struct stat *restrict of) { return look(AT_FDCWD, path, of, AT_SYMLINK_NOFOLLOW); }
int lstat64(const char *restrict path, struct stat64 *restrict of) { return look(AT_FDCWD, path, of, AT_SYMLINK_NOFOLLOW); }
int fstat(int file, struct stat *of) { return look_at_open(file, of); }
int fstat64(int file, struct stat64 *of) { return look_at_open(file, of); }
int fstatat(int folder, const char *restrict path, struct stat *restrict of, int flags) { return look(folder, path, of, flags); }
int fstatat64(int folder, const char *restrict path, struct stat64 *restrict of, int flags) { return look(folder, path, of, flags); }

/* What programs call that were linked against a C library before 2.33. */
int __xstat(int v, const char *path, struct stat *of) { return (void)v, look(AT_FDCWD, path, of, 0); }
int __xstat64(int v, const char *path, struct stat64 *of) { return (void)v, look(AT_FDCWD, path, of, 0); }
int __lxstat(int v, const char *path, struct stat *of) { return (void)v, look(AT_FDCWD, path, of, AT_SYMLINK_NOFOLLOW); }
int __lxstat64(int v, const char *path, struct stat64 *of) { return (void)v, look(AT_FDCWD, path, of, AT_SYMLINK_NOFOLLOW); }
int __fxstat(int v, int file, struct stat *of) { return (void)v, look_at_open(file, of); }
int __fxstat64(int v, int file, struct stat64 *of) { return (void)v, look_at_open(file, of); }
int __fxstatat(int v, int folder, const char *path, struct stat *of, int flags) { return (void)v, look(folder, path, of, flags); }
int __fxstatat64(int v, int folder, const char *path, struct stat64 *of, int flags) { return (void)v, look(folder, path, of, flags); }

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict of) {
    long status = syscall(SYS_statx, folder, path, flags, mask | STATX_CTIME, of);
    if (status == 0 && touched(of->stx_ctime.tv_sec, of->stx_ctime.tv_nsec)) {
        of->stx_atime.tv_sec += ahead;
        of->stx_mtime.tv_sec += ahead;
        of->stx_ctime.tv_sec += ahead;
        if (touched(of->stx_btime.tv_sec, of->stx_btime.tv_nsec)) of->stx_btime.tv_sec += ahead;
    }
    return (int)status;
}

/* The times of files, set. A file that is set is touched. */

static int set(int folder, const char *path, const struct timespec *both, int flags) {
    struct timespec at[2];
    for (int n = 0; both && n < 2; n++) {
        at[n] = both[n];
        if (at[n].tv_nsec != UTIME_NOW && at[n].tv_nsec != UTIME_OMIT) at[n].tv_sec -= ahead;
    }
    return (int)syscall(SYS_utimensat, folder, path, both ? at : NULL, flags);
}

static int set_coarse(int folder, const char *path, const struct timeval *both, int flags) {
    struct timespec at[2];
    for (int n = 0; both && n < 2; n++) at[n] = (struct timespec){both[n].tv_sec, both[n].tv_usec * 1000};
    return set(folder, path, both ? at : NULL, flags);
}

int utimensat(int folder, const char *path, const struct timespec both[2], int flags) { return set(folder, path, both, flags); }
int futimens(int file, const struct timespec both[2]) { return set(file, NULL, both, 0); }
int utimes(const char *path, const struct timeval both[2]) { return set_coarse(AT_FDCWD, path, both, 0); }
int lutimes(const char *path, const struct timeval both[2]) { return set_coarse(AT_FDCWD, path, both, AT_SYMLINK_NOFOLLOW); }
int futimes(int file, const struct timeval both[2]) { return set_coarse(file, NULL, both, 0); }
int futimesat(int folder, const char *path, const struct timeval both[2]) { return set_coarse(folder, path, both, 0); }

int utime(const char *path, const struct utimbuf *both) {
    struct timeval at[2] = {{both ? both->actime : 0, 0}, {both ? both->modtime : 0, 0}};
    return set_coarse(AT_FDCWD, path, both ? at : NULL, 0);
}
