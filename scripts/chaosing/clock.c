/* A clock that can be told to jump: preloaded into every process of a chaos run (`clock.py`).
 *
 * CLOCK_REALTIME and what libc makes of it are moved by the seconds in the file that CHAOS_CLOCK names
 * (one signed 64-bit number, mapped, so that a change is seen at once). Monotonic clocks stay: a real
 * machine's do not jump either when somebody sets its time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) offset = map;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_clock_gettime) *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real_clock_gettime(clock, at);
    if (status == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += *offset;
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    if (status == 0 && at) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return status;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
