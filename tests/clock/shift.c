// Makes a process believe that it is another time: loaded before the C library, it adds CLOCK_SHIFT_S seconds to the
// wall clock. Clocks that only run are left alone, so that waiting still works.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    const char *shift = getenv("CLOCK_SHIFT_S");
    if (result == 0 && shift && clock == CLOCK_REALTIME) time->tv_sec += atol(shift);
    return result;
}
