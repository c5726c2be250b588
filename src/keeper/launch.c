/* How a monitor comes to life: the launcher that waits for `ready` or `failed`, writes the pidfile and exits; and the
 * files that are removed at the monitor's end. The launcher's exit code is the contract with whoever starts us. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAUNCHER_FD = 3 };

static int launcher = -1; /* the pipe to the waiting launcher */
static bool in_foreground;
static char *paths; /* of `ready` */
static size_t paths_length;

/* ---- the launcher ---- */

static bool wants_foreground(char **argv)
{
  static const char *const no[] = { "", "0", "n", "no", "f", "false", "off" };
  for (char **argument = argv + 1; *argument != NULL && strcmp(*argument, "--") != 0; argument++) {
    if (strcmp(*argument, "--skip-fork") == 0) {
      return true;
    }
  }
  const char *value = getenv("CONMON_SKIP_FORK");
  for (size_t i = 0; value != NULL && i < sizeof no / sizeof *no; i++) {
    if (strcasecmp(value, no[i]) == 0) {
      return false;
    }
  }
  return value != NULL;
}

static bool write_pidfile(const char *path, pid_t pid)
{
  char text[20];
  size_t n = format_number(text, (uint64_t)pid);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool written = fd >= 0 && fchmod(fd, 0644) == 0 && write(fd, text, n) == (ssize_t)n;
  if (!written) {
    COMPLAIN("write pidfile ", path, ": ", strerror(errno));
  }
  close_fd(&fd);
  return written;
}

/* Reads what the keeper reports: 'R' and the pidfile's path, or 'F', a code and a text. */
static int wait_for_keeper(int fd, pid_t keeper)
{
  char report[MAX_FAILED_BYTES + 8];
  size_t n = 0;
  ssize_t r;
  do {
    r = read(fd, report + n, sizeof report - 1 - n);
    n += r > 0 ? (size_t)r : 0;
  } while (r > 0 || (r < 0 && errno == EINTR));
  report[n] = '\0';
  if (n >= 2 && report[0] == 'R') {
    if (report[2] == '\0' || write_pidfile(report + 2, keeper)) {
      return 0;
    }
    kill(keeper, SIGTERM);
    return 1;
  }
  waitpid(keeper, NULL, 0);
  if (n < 2) {
    COMPLAIN("start server: the keeper ended before the server was ready");
    return 1;
  }
  if (n > 2) {
    if (report[n - 1] != '\n') {
      report[n++] = '\n';
    }
    (void)!write(STDERR_FILENO, report + 2, n - 2);
  }
  return (unsigned char)report[1];
}

static void close_inherited(void)
{
  unsigned first = launcher < 0 ? LAUNCHER_FD : LAUNCHER_FD + 1;
  if (syscall(SYS_close_range, first, ~0u, 0u) < 0) {
    for (int fd = (int)first; fd < 65536; fd++) {
      close(fd);
    }
  }
}

/* Returns the exit code in the launcher, -1 in the keeper. */
int launch(int argc, char **argv)
{
  int ends[2];
  int code = prepare_server(argc, argv);
  if (code != 0) {
    return code;
  }
  in_foreground = wants_foreground(argv);
  if (!in_foreground) {
    if (pipe2(ends, O_CLOEXEC) < 0) {
      COMPLAIN("start keeper: pipe: ", strerror(errno));
      return 1;
    }
    pid_t keeper = fork();
    if (keeper < 0) {
      COMPLAIN("start keeper: fork: ", strerror(errno));
      return 1;
    }
    if (keeper > 0) {
      close(ends[1]);
      return wait_for_keeper(ends[0], keeper);
    }
    setsid();
    launcher = ends[1] == LAUNCHER_FD ? LAUNCHER_FD : dup3(ends[1], LAUNCHER_FD, O_CLOEXEC);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
  }
  close_inherited();
  raise_file_limit();
  return -1;
}

/* Whoever waits for the end of what we were given shall not wait for the pod's. */
static void detach(bool keep_stdout)
{
  close_fd(&launcher);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDERR_FILENO);
    if (!keep_stdout) {
      dup2(null, STDOUT_FILENO);
    }
    close(null);
  }
}

/* False: the launcher is gone. */
bool report_ready(bool keep_stdout)
{
  if (in_foreground) {
    return true;
  }
  char report[PATH_MAX + 2] = { 'R', 0 };
  size_t length = paths == NULL ? 0 : strlen(paths);
  if (length >= PATH_MAX) {
    length = 0;
  }
  memcpy(report + 2, paths, length);
  bool told = write(launcher, report, length + 2) == (ssize_t)length + 2;
  detach(keep_stdout);
  return told;
}

/* No server was ever ready. */
void report_failed(int code, const char *text, size_t length)
{
  if (in_foreground && length > 0) {
    (void)!write(STDERR_FILENO, text, length);
    if (text[length - 1] != '\n') {
      (void)!write(STDERR_FILENO, "\n", 1);
    }
  }
  if (launcher >= 0) {
    char start[2] = { 'F', (char)code };
    if (write(launcher, start, sizeof start) == sizeof start && length > 0) {
      (void)!write(launcher, text, length);
    }
    close_fd(&launcher);
  }
}

/* ---- files that end with the monitor ---- */

/* The pidfile's path and the sockets' paths, each ended by a NUL. */
int set_paths(const char *bytes, size_t length)
{
  if (length > MAX_PATHS_BYTES || (length > 0 && bytes[length - 1] != '\0')) {
    return EINVAL;
  }
  char *copy = malloc(length + 1);
  if (copy == NULL) {
    return ENOMEM;
  }
  memcpy(copy, bytes, length);
  copy[length] = '\0';
  free(paths);
  paths = copy;
  paths_length = length;
  return 0;
}

/* Only while it names us: the client may have removed it, and somebody else may have written it. */
static void remove_pidfile(const char *path)
{
  char text[24];
  char own[24];
  size_t length = format_number(own, (uint64_t)getpid());
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
  close_fd(&fd);
  if (n == (ssize_t)length && memcmp(text, own, length) == 0) {
    unlink(path);
  }
}

void remove_paths(void)
{
  struct stat st;
  const char *end = paths + paths_length;
  for (const char *path = paths; path != NULL && path < end; path += strlen(path) + 1) {
    if (path == paths) {
      remove_pidfile(path);
    } else if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
      unlink(path);
    }
  }
}
