/* `holdfast-monitor run-oci [--pid-file FILE] [--parent PID] -- COMMAND ARGUMENT...`: executes an OCI runtime, a hook or a
 * cleanup command as whoever launched the monitor would have: oom_score_adj, limits, umask, signals and environment of the
 * launch. HOLDFAST_ENV_NAME=VALUE becomes NAME=VALUE. Exits 125 if its parent is gone, 126 or 127 if it cannot execute. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { USAGE = 2, PARENT_GONE = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

struct request {
  const char *pid_file;
  pid_t parent; /* 0: not checked */
  char **command;
};

static int usage(void)
{
  COMPLAIN("error: usage: holdfast-monitor run-oci [--pid-file FILE] [--parent PID] -- COMMAND [ARGUMENT...]");
  return USAGE;
}

static bool parse(int argc, char **argv, struct request *request)
{
  int i = 1;
  for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
    if (strcmp(argv[i], "--pid-file") == 0) {
      request->pid_file = argv[i + 1];
    } else if (strcmp(argv[i], "--parent") == 0) {
      char *end;
      long pid = strtol(argv[i + 1], &end, 10);
      if (*end != '\0' || pid <= 0 || pid > INT_MAX) {
        return false;
      }
      request->parent = (pid_t)pid;
    } else {
      return false;
    }
  }
  request->command = argv + i + 1;
  return i + 1 < argc && strcmp(argv[i], "--") == 0;
}

/* Whole or not at all: whoever finds the file finds the pid in it. */
static bool write_pid(const char *path)
{
  char text[20];
  char fresh[PATH_MAX];
  size_t length = strlen(path);
  size_t n = format_number(text, (uint64_t)getpid());
  if (length + sizeof ".new" > sizeof fresh) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(fresh, path, length);
  memcpy(fresh + length, ".new", sizeof ".new");
  int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool written = fd >= 0 && write(fd, text, n) == (ssize_t)n;
  close_fd(&fd);
  if (written && rename(fresh, path) == 0) {
    return true;
  }
  int error = errno;
  unlink(fresh);
  errno = error;
  return false;
}

static rlim_t parse_limit(const char **text)
{
  static const char unlimited[] = "unlimited";
  if (strncmp(*text, unlimited, sizeof unlimited - 1) == 0) {
    *text += sizeof unlimited - 1;
    return RLIM_INFINITY;
  }
  char *end;
  rlim_t limit = strtoull(*text, &end, 10);
  *text = end;
  return limit;
}

/* What lacks privilege stays as it is. */
static void restore_limits(void)
{
  const char *oom = getenv("HOLDFAST_LAUNCH_OOM");
  const char *files = getenv("HOLDFAST_LAUNCH_NOFILE");
  if (oom != NULL) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      (void)!write(fd, oom, strlen(oom));
      close(fd);
    }
  }
  if (files != NULL && files[0] != '\0') {
    struct rlimit limit;
    limit.rlim_cur = parse_limit(&files);
    files += *files == ':';
    limit.rlim_max = parse_limit(&files);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
}

static bool starts_with(const char *text, const char *start)
{
  return strncmp(text, start, strlen(start)) == 0;
}

/* crun hands a stale LISTEN_FDS's descriptors to the container; the rest is the server's own. */
static bool is_ours(const char *variable)
{
  static const char *const start[] = {
    "LISTEN_", "NOTIFY_SOCKET=", "NODE_", "MALLOC_ARENA_MAX=", "MALLOC_TRIM_THRESHOLD_=", "UV_THREADPOOL_SIZE=", "HOLDFAST_",
  };
  for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
    if (starts_with(variable, start[i])) {
      return true;
    }
  }
  return false;
}

/* The launch's variables, then those of the request, which may have any name. */
static void restore_environment(void)
{
  static const char request[] = "HOLDFAST_ENV_";
  char **from = environ;
  size_t count = 0;
  while (from[count] != NULL) {
    count++;
  }
  char **kept = calloc(count + 1, sizeof *kept);
  if (kept == NULL) {
    return;
  }
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_ours(from[i])) {
      kept[n++] = from[i];
    }
  }
  environ = kept;
  for (size_t i = 0; i < count; i++) {
    if (starts_with(from[i], request)) {
      (void)putenv(from[i] + sizeof request - 1);
    }
  }
}

static void restore_signals(void)
{
  sigset_t none;
  for (int signal_number = 1; signal_number < 65; signal_number++) {
    (void)signal(signal_number, SIG_DFL);
  }
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

int run_oci_main(int argc, char **argv)
{
  struct request request = { 0 };
  if (!parse(argc, argv, &request)) {
    return usage();
  }
  umask(022);
  if (request.pid_file != NULL && !write_pid(request.pid_file)) {
    COMPLAIN("run ", request.command[0], ": write pid file ", request.pid_file, ": ", strerror(errno));
    return NOT_EXECUTABLE;
  }
  /* After the file: a successor that finds none must be right that we never ran the command. */
  if (request.parent != 0 && getppid() != request.parent) {
    if (request.pid_file != NULL) {
      unlink(request.pid_file);
    }
    return PARENT_GONE;
  }
  restore_limits();
  restore_environment();
  restore_signals();
  execvp(request.command[0], request.command);
  int error = errno;
  COMPLAIN("run ", request.command[0], ": ", strerror(error));
  return error == ENOENT || error == ENOTDIR ? NOT_FOUND : NOT_EXECUTABLE;
}
