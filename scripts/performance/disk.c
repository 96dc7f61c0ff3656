/* Preloaded into a program, this library counts what the program writes to files, and makes each
 * sync slower. scripts/performance/disk.py builds it.
 *
 *   DISK_COUNTS=FILE       adds the counts to FILE: for each kind of file, in the order of `kinds`,
 *                          the calls that write, their bytes, and the syncs, as native 64-bit
 *                          numbers. Processes may share the file.
 *   DISK_SYNC_DELAY_MS=N   delays each fsync and fdatasync by N ms before it is carried out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* A file belongs to the first kind whose text is in its path. */
enum { WAL, DATABASE, OTHER, KINDS, NO_FILE = KINDS };
static const char *const kinds[KINDS] = {"-wal", ".db", ""};

struct counts {
    atomic_uint_fast64_t calls, bytes, syncs;
};
static struct counts *counts;
static long delay_ms;

/* The kind of each open file plus 1; 0 if it is not known yet. */
#define FILES 65536
static atomic_uchar known[FILES];

__attribute__((constructor)) static void begin(void) {
    const char *delay = getenv("DISK_SYNC_DELAY_MS"), *path = getenv("DISK_COUNTS");
    delay_ms = delay ? atol(delay) : 0;
    if (!path) return;
    size_t size = KINDS * sizeof(struct counts);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) return;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) counts = shared;
    close(file);
}

static unsigned char look(int file) {
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return NO_FILE;
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return NO_FILE;
    path[length] = 0;
    unsigned char kind = 0;
    while (!strstr(path, kinds[kind])) kind++;
    return kind;
}

static unsigned char kind_of(int file) {
    if (file < 0 || file >= FILES) return look(file);
    unsigned char kind = atomic_load(&known[file]);
    if (kind) return kind - 1;
    kind = look(file);
    atomic_store(&known[file], kind + 1);
    return kind;
}

static ssize_t count(int file, ssize_t written) {
    int error = errno;
    if (counts && written >= 0) {
        unsigned char kind = kind_of(file);
        if (kind != NO_FILE) {
            atomic_fetch_add(&counts[kind].calls, 1);
            atomic_fetch_add(&counts[kind].bytes, (uint_fast64_t)written);
        }
    }
    errno = error;
    return written;
}

static int sync_file(int file, int (*sync)(int)) {
    struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000};
    while (delay_ms && nanosleep(&delay, &delay) != 0 && errno == EINTR) {}
    if (counts) {
        unsigned char kind = kind_of(file);
        if (kind != NO_FILE) atomic_fetch_add(&counts[kind].syncs, 1);
    }
    return sync(file);
}

/* The function of the C library. Looking it up twice does no harm. */
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *from, size_t size) {
    REAL(write);
    return count(file, real(file, from, size));
}

ssize_t writev(int file, const struct iovec *from, int parts) {
    REAL(writev);
    return count(file, real(file, from, parts));
}

ssize_t pwrite(int file, const void *from, size_t size, off_t at) {
    REAL(pwrite);
    return count(file, real(file, from, size, at));
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
    REAL(pwrite64);
    return count(file, real(file, from, size, at));
}

ssize_t pwritev(int file, const struct iovec *from, int parts, off_t at) {
    REAL(pwritev);
    return count(file, real(file, from, parts, at));
}

ssize_t pwritev64(int file, const struct iovec *from, int parts, off64_t at) {
    REAL(pwritev64);
    return count(file, real(file, from, parts, at));
}

int fsync(int file) {
    REAL(fsync);
    return sync_file(file, real);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return sync_file(file, real);
}

int close(int file) {
    REAL(close);
    if (file >= 0 && file < FILES) atomic_store(&known[file], 0);
    return real(file);
}
