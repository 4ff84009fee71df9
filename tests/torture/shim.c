/* LD_PRELOAD library: logs what a program and its children do to the files below a folder, and kills it at one of these
   operations.

   EMBEXP_TORTURE names a control folder with `config`, of five lines: the folder to watch (a real path), at which
   operation to kill (0: never), "before", "middle" or "after" it, whom ("all" processes that have touched the folder, or
   the "first" of them), and 1 if the contents of files are copied when they become durable. The library writes there:

     state   counters that all processes share, see struct state; python reads the process ids in it
     log     one line for each operation: number, name, path, second path, inode, copy (tab-separated)
     copies/ contents of files, as of an fsync or before a name is lost

   Operations are done one at a time, across threads and processes, so that their order in the log is the real one. An
   operation that fails is logged as `failed`, and is counted too: what is counted must not depend on its result.  */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PROCESSES 1024
#define VARIABLE "EMBEXP_TORTURE"

enum when { BEFORE, MIDDLE, AFTER };

struct state {
  int32_t lock;   /* thread id of who has it */
  int32_t count;  /* of processes */
  int64_t number; /* of the last operation */
  int32_t processes[PROCESSES];
};

static struct state *state;
static char control[PATH_MAX], watched[PATH_MAX];
static size_t watched_length;
static int64_t kill_at;
static enum when kill_when;
static int kill_all, copying, log_file = -1;
static int32_t registered; /* process id under which this process is in the table */

#define REAL(name) ((__typeof__(&name))real_(#name))
static void *real_(const char *name) { return dlsym(RTLD_NEXT, name); }

static void stop(const char *what) {
  static const char head[] = "torture: ";
  syscall(SYS_write, 2, head, sizeof head - 1);
  syscall(SYS_write, 2, what, strlen(what));
  syscall(SYS_write, 2, "\n", 1);
  _exit(99);
}

/* Reads the configuration, once per process tree that has the variable; whether it is on. */
static int on(void) {
  if (!state) {
    const char *folder = getenv(VARIABLE);
    if (!folder || !*folder) return 0;
    char path[PATH_MAX + 32], text[PATH_MAX + 256];
    snprintf(path, sizeof path, "%s/config", folder);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long size = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text - 1);
    if (size <= 0) stop("no config in " VARIABLE);
    syscall(SYS_close, file);
    text[size] = 0;
    char *rest = text, *line[5];
    for (int i = 0; i < 5; i++) line[i] = strsep(&rest, "\n");
    if (!line[4]) stop("a config has five lines");
    strcpy(watched, line[0]);
    watched_length = strlen(watched);
    kill_at = atoll(line[1]);
    kill_when = !strcmp(line[2], "before") ? BEFORE : !strcmp(line[2], "middle") ? MIDDLE : AFTER;
    kill_all = !strcmp(line[3], "all");
    copying = atoi(line[4]);
    snprintf(control, sizeof control, "%s", folder);
    snprintf(path, sizeof path, "%s/log", control);
    log_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    /* a high number, which no program expects */
    int high = (int)syscall(SYS_fcntl, log_file, F_DUPFD_CLOEXEC, 900);
    if (high >= 0) { syscall(SYS_close, log_file); log_file = high; }
    snprintf(path, sizeof path, "%s/state", control);
    file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    struct state *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED || log_file < 0) stop("no state or log");
    syscall(SYS_close, file);
    state = mapped;
  }
  return 1;
}

static void lock(void) {
  int32_t me = (int32_t)syscall(SYS_gettid), found;
  for (unsigned tries = 0;; tries++) {
    found = 0;
    if (__atomic_compare_exchange_n(&state->lock, &found, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) break;
    if (tries % 4096 == 4095 && syscall(SYS_tkill, found, 0) && errno == ESRCH)
      __atomic_compare_exchange_n(&state->lock, &found, 0, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    sched_yield();
  }
  int32_t process = getpid();
  if (registered != process) {
    if (state->count >= PROCESSES) stop("too many processes");
    state->processes[state->count++] = registered = process;
  }
}

static void unlock(void) { __atomic_store_n(&state->lock, 0, __ATOMIC_RELEASE); }

/* Kills while the lock is held: nobody else does an operation any more. */
static void die(void) {
  for (int i = 0; i < (kill_all ? state->count : 1); i++)
    if (state->processes[i] != getpid()) kill(state->processes[i], SIGKILL);
  if (kill_all || state->processes[0] == getpid())
    for (;;) kill(getpid(), SIGKILL);
}

/* The real path of a name whose last part may not exist; whether it is the watched folder or below it. */
static int resolved(int folder, const char *name, char *path) {
  char whole[2 * PATH_MAX], parent[PATH_MAX];
  if (name[0] == '/') {
    snprintf(whole, sizeof whole, "%s", name);
  } else if (folder == AT_FDCWD) {
    if (syscall(SYS_getcwd, parent, sizeof parent) < 0) return 0;
    snprintf(whole, sizeof whole, "%s/%s", parent, name);
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, parent, sizeof parent - 1);
    if (size < 0) return 0;
    parent[size] = 0;
    snprintf(whole, sizeof whole, "%s/%s", parent, name);
  }
  size_t length = strlen(whole);
  while (length > 1 && whole[length - 1] == '/') whole[--length] = 0;
  char *slash = strrchr(whole, '/');
  if (!slash || length >= PATH_MAX) return 0;
  char last[NAME_MAX + 2];
  snprintf(last, sizeof last, "%s", slash + 1);
  if (slash == whole) slash++;
  *slash = 0;
  if (!realpath(whole, parent)) return 0;
  if (!strcmp(last, "..") || snprintf(path, PATH_MAX, "%s%s%s", parent, strcmp(last, ".") ? "/" : "", strcmp(last, ".") ? last : "") >= PATH_MAX)
    return 0;
  return !strncmp(path, watched, watched_length) && (path[watched_length] == '/' || !path[watched_length]);
}

/* The path of an open regular file or folder; whether it is watched. A file without a name ends in " (deleted)". */
static int opened(int descriptor, char *path, struct stat *about) {
  char link[64];
  if (fstat(descriptor, about) || !(S_ISREG(about->st_mode) || S_ISDIR(about->st_mode))) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return !strncmp(path, watched, watched_length) && (path[watched_length] == '/' || !path[watched_length]);
}

static void record(const char *name, const char *first, const char *second, unsigned long inode, int64_t copy) {
  char line[3 * PATH_MAX];
  int size = snprintf(line, sizeof line, "%lld\t%s\t%s\t%s\t%lu\t%lld\n", (long long)state->number, name, first, second, inode,
                      (long long)copy);
  syscall(SYS_write, log_file, line, size);
}

/* Copies what a path holds now; the number of the copy, or -1. */
static int64_t copied(const char *path) {
  static char buffer[1 << 16]; /* the lock is held */
  char to[PATH_MAX + 64];
  struct stat about;
  if (!copying || stat(path, &about) || !S_ISREG(about.st_mode)) return -1;
  snprintf(to, sizeof to, "%s/copies/%lld", control, (long long)state->number);
  int from = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  int into = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (from < 0 || into < 0) stop("a file can't be copied");
  long size;
  while ((size = syscall(SYS_read, from, buffer, sizeof buffer)) > 0)
    if (syscall(SYS_write, into, buffer, size) != size) stop("a copy can't be written");
  syscall(SYS_close, from);
  syscall(SYS_close, into);
  return state->number;
}

static unsigned long inode_of(const char *path) {
  struct stat about;
  return lstat(path, &about) ? 0 : about.st_ino;
}

/* Begins an operation: takes the lock, counts, and kills if it is its turn. */
static void begin(const char *name, const char *first, const char *second) {
  lock();
  state->number++;
  if (state->number == kill_at && kill_when == BEFORE) {
    record("killed", name, first, 0, -1);
    die();
  }
}

static int middle(void) { return state->number == kill_at && kill_when == MIDDLE; }

/* Ends an operation. */
static void end(const char *name, const char *first, const char *second, unsigned long inode, int64_t copy, int failed) {
  int saved = errno;
  record(failed ? "failed" : name, failed ? name : first, failed ? first : second, inode, copy);
  if (state->number == kill_at && kill_when != BEFORE) {
    record("killed", name, first, 0, -1);
    die();
  }
  unlock();
  errno = saved;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int rename_(int a, const char *from, int b, const char *to, unsigned flags) {
  char first[PATH_MAX], second[PATH_MAX];
  int watching = on() && resolved(a, from, first);
  watching = on() && resolved(b, to, second) || watching;
  if (!watching) return (int)syscall(SYS_renameat2, a, from, b, to, flags);
  begin("rename", first, second);
  unsigned long inode = inode_of(first);
  int64_t copy = inode_of(second) != inode ? copied(second) : -1;
  int result = (int)syscall(SYS_renameat2, a, from, b, to, flags);
  end("rename", first, second, inode, copy, result < 0);
  return result;
}
int rename(const char *from, const char *to) { return rename_(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return rename_(a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { return rename_(a, from, b, to, flags); }

int linkat(int a, const char *from, int b, const char *to, int flags) {
  char first[PATH_MAX], second[PATH_MAX];
  if (!on() || !resolved(b, to, second)) return (int)syscall(SYS_linkat, a, from, b, to, flags);
  if (!resolved(a, from, first)) snprintf(first, sizeof first, "%s", from);
  begin("link", first, second);
  int result = (int)syscall(SYS_linkat, a, from, b, to, flags);
  end("link", first, second, result < 0 ? 0 : inode_of(second), -1, result < 0);
  return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *content, int folder, const char *name) {
  char path[PATH_MAX];
  if (!on() || !resolved(folder, name, path)) return (int)syscall(SYS_symlinkat, content, folder, name);
  begin("symlink", path, content);
  int result = (int)syscall(SYS_symlinkat, content, folder, name);
  end("symlink", path, content, result < 0 ? 0 : inode_of(path), -1, result < 0);
  return result;
}
int symlink(const char *content, const char *name) { return symlinkat(content, AT_FDCWD, name); }

int unlinkat(int folder, const char *name, int flags) {
  char path[PATH_MAX];
  if (!on() || !resolved(folder, name, path)) return (int)syscall(SYS_unlinkat, folder, name, flags);
  const char *what = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
  begin(what, path, "");
  unsigned long inode = inode_of(path);
  int64_t copy = copied(path);
  int result = (int)syscall(SYS_unlinkat, folder, name, flags);
  end(what, path, "", inode, copy, result < 0);
  return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
  struct stat about;
  return unlinkat(AT_FDCWD, name, !lstat(name, &about) && S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0);
}

int mkdirat(int folder, const char *name, mode_t mode) {
  char path[PATH_MAX];
  if (!on() || !resolved(folder, name, path)) return (int)syscall(SYS_mkdirat, folder, name, mode);
  begin("mkdir", path, "");
  int result = (int)syscall(SYS_mkdirat, folder, name, mode);
  end("mkdir", path, "", result < 0 ? 0 : inode_of(path), -1, result < 0);
  return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* ---- opening for writing ------------------------------------------------------------------------------------------ */

static int open_(int folder, const char *name, int flags, mode_t mode) {
  char path[PATH_MAX];
  int making = flags & (O_CREAT | O_TRUNC);
  if (!making || (flags & O_TMPFILE) == O_TMPFILE || !on() || !resolved(folder, name, path))
    return (int)syscall(SYS_openat, folder, name, flags, mode);
  unsigned long before = inode_of(path);
  begin("open", path, "");
  int result = (int)syscall(SYS_openat, folder, name, flags, mode);
  unsigned long after = inode_of(path);
  const char *what = !before ? "create" : flags & O_TRUNC ? "truncate" : "open";
  end(what, path, "", after, -1, result < 0);
  return result;
}

#define MODE(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list more; \
    va_start(more, flags); \
    mode = va_arg(more, mode_t); \
    va_end(more); \
  }
int open(const char *name, int flags, ...) { MODE(flags) return open_(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return open_(AT_FDCWD, name, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE(flags) return open_(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE(flags) return open_(folder, name, flags | O_LARGEFILE, mode); }
int creat(const char *name, mode_t mode) { return open_(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return open_(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static FILE *fopen_(FILE *(*real)(const char *, const char *), const char *name, const char *mode) {
  char path[PATH_MAX];
  if (mode[0] == 'r' || !on() || !resolved(AT_FDCWD, name, path)) return real(name, mode);
  unsigned long before = inode_of(path);
  begin("open", path, "");
  FILE *result = real(name, mode);
  end(!before ? "create" : mode[0] == 'w' ? "truncate" : "open", path, "", inode_of(path), -1, !result);
  return result;
}
FILE *fopen(const char *name, const char *mode) { return fopen_(REAL(fopen), name, mode); }
FILE *fopen64(const char *name, const char *mode) { return fopen_(REAL(fopen64), name, mode); }

/* ---- contents ----------------------------------------------------------------------------------------------------- */

static int sync_(int number, int descriptor) {
  char path[PATH_MAX], link[64];
  struct stat about;
  if (!on() || !opened(descriptor, path, &about)) return (int)syscall(number, descriptor);
  begin("fsync", path, "");
  /* It is only noted: a kill loses nothing, and a disk takes its time. The file may have no name any more. */
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  end(S_ISDIR(about.st_mode) ? "fsync_folder" : "fsync", path, "", about.st_ino, copied(link), 0);
  return 0;
}
int fsync(int descriptor) { return sync_(SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return sync_(SYS_fdatasync, descriptor); }

#define WRITING(expression, half) \
  char path[PATH_MAX]; \
  struct stat about; \
  if (!on() || !opened(descriptor, path, &about)) return expression; \
  begin("write", path, ""); \
  ssize_t result; \
  if (middle()) { half; } else { result = expression; } \
  end("write", path, "", about.st_ino, -1, result < 0); \
  return result;

ssize_t write(int descriptor, const void *bytes, size_t size) {
  WRITING(syscall(SYS_write, descriptor, bytes, size), result = syscall(SYS_write, descriptor, bytes, size / 2))
}
ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t place) {
  WRITING(syscall(SYS_pwrite64, descriptor, bytes, size, place),
          result = syscall(SYS_pwrite64, descriptor, bytes, size / 2, place))
}
ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t place) {
  WRITING(syscall(SYS_pwrite64, descriptor, bytes, size, place),
          result = syscall(SYS_pwrite64, descriptor, bytes, size / 2, place))
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  WRITING(syscall(SYS_writev, descriptor, parts, count), result = syscall(SYS_writev, descriptor, parts, count / 2))
}

static int shorten(int number, int descriptor, off_t size) {
  char path[PATH_MAX];
  struct stat about;
  if (!on() || !opened(descriptor, path, &about)) return (int)syscall(number, descriptor, size);
  begin("resize", path, "");
  int result = (int)syscall(number, descriptor, size);
  end("resize", path, "", about.st_ino, -1, result < 0);
  return result;
}
int ftruncate(int descriptor, off_t size) { return shorten(SYS_ftruncate, descriptor, size); }
int ftruncate64(int descriptor, off64_t size) { return shorten(SYS_ftruncate, descriptor, size); }

static int shorten_name(const char *name, off_t size) {
  char path[PATH_MAX];
  if (!on() || !resolved(AT_FDCWD, name, path)) return (int)syscall(SYS_truncate, name, size);
  begin("resize", path, "");
  int result = (int)syscall(SYS_truncate, name, size);
  end("resize", path, "", inode_of(path), -1, result < 0);
  return result;
}
int truncate(const char *name, off_t size) { return shorten_name(name, size); }
int truncate64(const char *name, off64_t size) { return shorten_name(name, size); }
