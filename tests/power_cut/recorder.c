// Records what a program does to the files of one folder: each write, change of length, sync, and
// change of the folder itself, in order. Preloaded into the program (LD_PRELOAD).
//
// RECORDER_FILE    the record: a file of the full size, which this library maps
// RECORDER_FOLDER  the folder, without symbolic links
// RECORDER_DELAY   the longest delay of a sync, in microseconds
// RECORDER_SEED    of the delays
//
// The record begins with a `head`. Entries follow. A lock is held around an entry and its call, so
// the order of the entries is the order of the calls. Only a sync has two entries, because other
// threads go on meanwhile: a write between them may be covered by the sync or not. All numbers are
// in the machine's byte order.
//
// Not recorded: what bypasses the C library (the crate rustix does), and writes to mapped memory
// (the -shm file, which SQLite builds anew). The test compares the record with the files at the
// end, so a call that is missing here does not stay unnoticed.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { START, OPEN, CREATE, WRITE, RESIZE, GROW, SYNC, SYNCED, UNLINK, RENAME };

struct head {
    _Atomic uint64_t entries;  // how many
    _Atomic uint64_t bytes;    // how many they take
    _Atomic uint64_t ends_at;  // the first write or sync from here on kills the process; 0: none
};

struct entry {
    uint32_t kind, file;  // `file` is the inode, counted by this process from 1; 0 is the folder
    uint64_t at;          // offset, size, number of the sync, or inode
    uint64_t length;      // of the data that follow, which are padded to 8 bytes
};

static struct head *head;
static char *entries;
static uint64_t room;
static const char *folder;
static size_t folder_length;
static uint64_t longest_delay, dice = 88172645463325252u, syncs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { MOST_FILES = 256, MOST_FDS = 65536, THE_FOLDER = -1 };
static ino_t inodes[MOST_FILES];
static int files[MOST_FDS];  // by descriptor: the number of the file, THE_FOLDER, or 0

#define REAL(result, name, ...)                             \
    static result (*real_##name)(__VA_ARGS__);              \
    static void find_##name(void) {                         \
        if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name); \
    }
REAL(int, open, const char *, int, ...)
REAL(int, openat, int, const char *, int, ...)
REAL(int, close, int)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t)
REAL(int, ftruncate, int, off_t)
REAL(int, fallocate, int, int, off_t, off_t)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(int, unlink, const char *)
REAL(int, rename, const char *, const char *)

static void give_up(const char *why) {
    fprintf(stderr, "recorder: %s\n", why);
    _exit(70);
}

static void put(enum kind kind, int file, uint64_t at, const void *data, uint64_t length) {
    uint64_t ends_at = atomic_load(&head->ends_at);
    // No other entries: their calls are over, so they must not be missing.
    if ((kind == WRITE || kind == SYNC) && ends_at && atomic_load(&head->entries) >= ends_at) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    struct entry entry = {kind, file == THE_FOLDER ? 0 : (uint32_t)file, at, length};
    uint64_t used = atomic_load(&head->bytes);
    uint64_t padded = (length + 7) & ~(uint64_t)7;
    if (used + sizeof entry + padded > room) give_up("the record is full");
    memcpy(entries + used, &entry, sizeof entry);
    if (length) memcpy(entries + used + sizeof entry, data, length);
    atomic_store(&head->bytes, used + sizeof entry + padded);
    atomic_fetch_add(&head->entries, 1);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("RECORDER_FILE"), *delay = getenv("RECORDER_DELAY");
    const char *seed = getenv("RECORDER_SEED");
    folder = getenv("RECORDER_FOLDER");
    if (!path || !folder) return;
    find_open(), find_openat(), find_close(), find_write(), find_writev(), find_pwrite();
    find_pwritev(), find_ftruncate(), find_fallocate(), find_fsync(), find_fdatasync();
    find_unlink(), find_rename();
    folder_length = strlen(folder);
    longest_delay = delay ? strtoull(delay, NULL, 10) : 0;
    dice ^= seed ? strtoull(seed, NULL, 10) * 2685821657736338717u : 0;
    int fd = real_open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) give_up("cannot open the record");
    char *mapped = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) give_up("cannot map the record");
    real_close(fd);
    entries = mapped + sizeof *head;
    room = status.st_size - sizeof *head;
    head = (struct head *)mapped;
    put(START, THE_FOLDER, 0, NULL, 0);
}

// The name of a path within the folder; "" for the folder, NULL for anything else.
static const char *name_of(const char *path) {
    if (!head || strncmp(path, folder, folder_length)) return NULL;
    const char *rest = path + folder_length;
    if (*rest == 0) return rest;
    return *rest == '/' ? rest + 1 : NULL;
}

static int *slot(int fd) {
    static int none;
    none = 0;
    return fd >= 0 && fd < MOST_FDS ? &files[fd] : &none;
}

static void note_open(int fd, const char *name, int is_new, int is_cut) {
    struct stat status;
    if (fstat(fd, &status)) give_up("cannot look at a file");
    if (S_ISDIR(status.st_mode)) {
        *slot(fd) = THE_FOLDER;
        return;
    }
    int file = 1;
    while (file < MOST_FILES && inodes[file] && inodes[file] != status.st_ino) file++;
    if (file == MOST_FILES || fd >= MOST_FDS) give_up("too many files");
    if (!inodes[file] || is_new) {
        inodes[file] = status.st_ino;
        put(is_new ? CREATE : OPEN, file, status.st_ino, name, strlen(name));
    }
    if (is_cut) put(RESIZE, file, 0, NULL, 0);
    *slot(fd) = file;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    find_openat();
    const char *name = name_of(path);
    if (!name) return real_openat(at, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = (flags & O_CREAT) && access(path, F_OK);
    int fd = real_openat(at, path, flags, mode);
    int error = errno;
    if (fd >= 0) note_open(fd, name, is_new, flags & O_TRUNC);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define OPENING(name, at, ...)                   \
    int name(__VA_ARGS__, int flags, ...) {      \
        mode_t mode = 0;                         \
        if (flags & (O_CREAT | __O_TMPFILE)) {   \
            va_list rest;                        \
            va_start(rest, flags);               \
            mode = va_arg(rest, mode_t);         \
            va_end(rest);                        \
        }                                        \
        return opened(at, path, flags, mode);    \
    }
OPENING(open, AT_FDCWD, const char *path)
OPENING(open64, AT_FDCWD, const char *path)
OPENING(openat, at, int at, const char *path)
OPENING(openat64, at, int at, const char *path)

int close(int fd) {
    find_close();
    *slot(fd) = 0;
    return real_close(fd);
}

// Runs `call` on a file of the folder, after its entry.
#define RECORDED(type, call, kind, at, data, length)  \
    pthread_mutex_lock(&lock);                        \
    put(kind, *slot(fd), at, data, length);           \
    type result = call;                               \
    int error = errno;                                \
    pthread_mutex_unlock(&lock);                      \
    errno = error;                                    \
    return result

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    find_pwrite();
    if (*slot(fd) <= 0) return real_pwrite(fd, data, length, at);
    RECORDED(ssize_t, real_pwrite(fd, data, length, at), WRITE, at, data, length);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t at) {
    return pwrite(fd, data, length, at);
}

static off_t position(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return lseek(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t length) {
    find_write();
    if (*slot(fd) <= 0) return real_write(fd, data, length);
    RECORDED(ssize_t, real_write(fd, data, length), WRITE, position(fd), data, length);
}

// One call for each part: the program sees a short write, which it has to expect.
ssize_t writev(int fd, const struct iovec *parts, int count) {
    find_writev();
    if (*slot(fd) <= 0 || count < 1) return real_writev(fd, parts, count);
    return write(fd, parts[0].iov_base, parts[0].iov_len);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    find_pwritev();
    if (*slot(fd) <= 0 || count < 1) return real_pwritev(fd, parts, count, at);
    return pwrite(fd, parts[0].iov_base, parts[0].iov_len, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    return pwritev(fd, parts, count, at);
}

int ftruncate(int fd, off_t size) {
    find_ftruncate();
    if (*slot(fd) <= 0) return real_ftruncate(fd, size);
    RECORDED(int, real_ftruncate(fd, size), RESIZE, size, NULL, 0);
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t from, off_t length) {
    find_fallocate();
    if (*slot(fd) <= 0 || mode) return real_fallocate(fd, mode, from, length);
    RECORDED(int, real_fallocate(fd, mode, from, length), GROW, from + length, NULL, 0);
}

int fallocate64(int fd, int mode, off_t from, off_t length) {
    return fallocate(fd, mode, from, length);
}

int posix_fallocate(int fd, off_t from, off_t length) {
    return fallocate(fd, 0, from, length) ? errno : 0;
}

int posix_fallocate64(int fd, off_t from, off_t length) {
    return posix_fallocate(fd, from, length);
}

// Short delays are more frequent than long ones. Called with the lock.
static uint64_t delay(void) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    uint64_t thousandths = (dice >> 20) % 1001;
    return longest_delay * thousandths * thousandths / 1000000;
}

static int synced(int fd, int (*call)(int)) {
    int file = *slot(fd);
    if (!file) return call(fd);
    pthread_mutex_lock(&lock);
    uint64_t number = ++syncs, wait = delay();
    put(SYNC, file, number, NULL, 0);
    pthread_mutex_unlock(&lock);
    usleep(wait);
    int result = call(fd), error = errno;
    if (!result) {
        pthread_mutex_lock(&lock);
        put(SYNCED, file, number, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    errno = error;
    return result;
}

int fsync(int fd) {
    find_fsync();
    return synced(fd, real_fsync);
}

int fdatasync(int fd) {
    find_fdatasync();
    return synced(fd, real_fdatasync);
}

int unlink(const char *path) {
    find_unlink();
    const char *name = name_of(path);
    if (!name) return real_unlink(path);
    pthread_mutex_lock(&lock);
    int result = real_unlink(path), error = errno;
    if (!result) put(UNLINK, THE_FOLDER, 0, name, strlen(name));
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rename(const char *from, const char *to) {
    find_rename();
    const char *old = name_of(from), *new = name_of(to);
    if (!old || !new) return real_rename(from, to);
    char names[2 * PATH_MAX];
    size_t length = strlen(old) + 1 + strlen(new);
    if (length >= sizeof names) give_up("a name is too long");
    memcpy(names, old, strlen(old) + 1);
    memcpy(names + strlen(old) + 1, new, strlen(new));
    pthread_mutex_lock(&lock);
    int result = real_rename(from, to), error = errno;
    if (!result) put(RENAME, THE_FOLDER, 0, names, length);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
