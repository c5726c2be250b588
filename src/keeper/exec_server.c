/* The server's process: where Node and the bundle are, what it inherits and what not. Runs in the forked child, but for the
 * first look, so that a missing Node is an error of the launcher. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int fd_limit;
static char **server_arguments;
static char *home; /* the directory of this program, without a slash at the end */
static struct rlimit launch_files;
static char launch_oom[16]; /* oom_score_adj, as text */

static bool find_home(void)
{
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) {
    return false;
  }
  path[n] = '\0';
  *strrchr(path, '/') = '\0';
  home = strdup(path);
  return home != NULL;
}

static bool join(char *to, const char *a, const char *b)
{
  size_t length = strlen(a);
  if (length + strlen(b) >= PATH_MAX) {
    return false;
  }
  memcpy(to, a, length);
  strcpy(to + length, b);
  return true;
}

static bool is_program(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* What `npm run build` recorded. */
static bool recorded_node(char *to)
{
  char file[PATH_MAX];
  if (!join(file, home, "/../lib/holdfast/node-path")) {
    return false;
  }
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, to, PATH_MAX - 1);
  close_fd(&fd);
  while (n > 0 && to[n - 1] == '\n') {
    n--;
  }
  if (n <= 0) {
    return false;
  }
  to[n] = '\0';
  return true;
}

/* The nth place of $PATH in which `node` may be. */
static bool node_in_path(char *to, int n)
{
  const char *place = getenv("PATH");
  for (; place != NULL && n > 0; n--) {
    place = strchr(place, ':');
    place = place == NULL ? NULL : place + 1;
  }
  if (place == NULL) {
    return false;
  }
  size_t length = strcspn(place, ":");
  if (length + sizeof "/node" > PATH_MAX) {
    to[0] = '\0';
    return true;
  }
  memcpy(to, length == 0 ? "." : place, length == 0 ? 1 : length);
  strcpy(to + (length == 0 ? 1 : length), "/node");
  return true;
}

/* The places where Node may be, the nearest first. */
static bool node_candidate(char *to, int n)
{
  const char *chosen = getenv("HOLDFAST_NODE");
  to[0] = '\0';
  switch (n) {
  case 0:
    (void)(chosen != NULL && join(to, chosen, ""));
    return true;
  case 1:
    (void)join(to, home, "/../lib/holdfast/node");
    return true;
  case 2:
    if (!recorded_node(to)) {
      to[0] = '\0';
    }
    return true;
  default:
    return node_in_path(to, n - 3);
  }
}

/* Finds Node; or says, one by one, where it looked. */
static bool find_node(char *to)
{
  for (int n = 0; node_candidate(to, n); n++) {
    if (to[0] != '\0' && is_program(to)) {
      return true;
    }
  }
  COMPLAIN("start server: Node is not there; set HOLDFAST_NODE or install it in one of the places tried:");
  for (int n = 0; node_candidate(to, n); n++) {
    if (to[0] != '\0') {
      COMPLAIN("  ", to);
    }
  }
  return false;
}

static bool find_server(char *to)
{
  const char *chosen = getenv("HOLDFAST_SERVER");
  bool fits = chosen != NULL ? join(to, chosen, "") : join(to, home, "/../lib/holdfast/server.cjs");
  if (fits && access(to, R_OK) == 0) {
    return true;
  }
  COMPLAIN("start server: cannot read ", fits ? to : "its path", ": ", strerror(fits ? errno : ENAMETOOLONG));
  return false;
}

/* ---- the server's process ---- */

static void put_limit(char *to, rlim_t limit)
{
  if (limit == RLIM_INFINITY) {
    strcpy(to, "unlimited");
  } else {
    to[format_number(to, limit)] = '\0';
  }
}

/* What is the server's alone; run-oci takes it out again. Node's own variables would change what it is. */
static void set_environment(void)
{
  static const char *const unwanted[] = {
    "LISTEN_FDS",      "LISTEN_PID",      "LISTEN_FDNAMES",  "NOTIFY_SOCKET",
    "NODE_OPTIONS",    "NODE_CHANNEL_FD", "NODE_UNIQUE_ID",  "NODE_CHANNEL_SERIALIZATION_MODE",
  };
  char limits[64];
  for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++) {
    unsetenv(unwanted[i]);
  }
  setenv("MALLOC_ARENA_MAX", "1", 1);
  setenv("MALLOC_TRIM_THRESHOLD_", "67108864", 1);
  setenv("UV_THREADPOOL_SIZE", "1", 1);
  if (launch_oom[0] != '\0') {
    setenv("HOLDFAST_LAUNCH_OOM", launch_oom, 1);
  }
  put_limit(limits, launch_files.rlim_cur);
  strcat(limits, ":");
  put_limit(limits + strlen(limits), launch_files.rlim_max);
  setenv("HOLDFAST_LAUNCH_NOFILE", limits, 1);
}

static void write_oom_score(const char *score)
{
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    (void)!write(fd, score, strlen(score));
    close(fd);
  }
}

static void inherit_channel(int channel_fd, int words_fd)
{
  if (words_fd < 0) {
    words_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
  }
  dup2(words_fd, STDERR_FILENO);
  if (channel_fd == CHANNEL_FD) {
    fcntl(channel_fd, F_SETFD, 0);
  } else {
    dup2(channel_fd, CHANNEL_FD);
  }
}

/* In the forked child. What goes wrong here stands in the last words. */
_Noreturn void exec_server(int channel_fd, int words_fd)
{
  static const int ours[] = { SIGHUP, SIGPIPE, SIGXFSZ };
  char node[PATH_MAX];
  char server[PATH_MAX];
  sigset_t none;
  inherit_channel(channel_fd, words_fd);
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
    signal(ours[i], SIG_DFL);
  }
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setrlimit(RLIMIT_NOFILE, &launch_files);
  if (launch_oom[0] != '\0') {
    write_oom_score(launch_oom);
  }
  size_t count = 0;
  while (server_arguments[count] != NULL) {
    count++;
  }
  char **argv = calloc(count + 4, sizeof *argv);
  if (argv == NULL || !find_node(node) || !find_server(server)) {
    _exit(127);
  }
  set_environment();
  argv[0] = node;
  argv[1] = (char[]){ "--v8-pool-size=0" };
  argv[2] = server;
  memcpy(argv + 3, server_arguments, count * sizeof *argv);
  execv(node, argv);
  COMPLAIN("start server: ", node, ": ", strerror(errno));
  _exit(127);
}

/* The keeper is the last that the kernel should kill. Who may not lower it goes on without. */
void lower_oom_score(void)
{
  int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, launch_oom, sizeof launch_oom - 1);
  close_fd(&fd);
  launch_oom[n > 0 ? n : 0] = '\0';
  launch_oom[strcspn(launch_oom, "\n")] = '\0';
  write_oom_score("-1000");
}

/* For what we hold. The server and the containers get the limits of the launch. */
void raise_file_limit(void)
{
  getrlimit(RLIMIT_NOFILE, &launch_files);
  struct rlimit most = { launch_files.rlim_max, launch_files.rlim_max };
  if (setrlimit(RLIMIT_NOFILE, &most) < 0) {
    most = launch_files;
  }
  fd_limit = most.rlim_cur > INT_MAX ? INT_MAX : (int)most.rlim_cur;
  fd_limit -= SPARE_FDS;
}

/* Returns 0, or the exit code of a launch that cannot work. */
int prepare_server(int argc, char **argv)
{
  char path[PATH_MAX];
  server_arguments = argc > 0 ? argv + 1 : argv;
  if (!find_home()) {
    COMPLAIN("start server: cannot read /proc/self/exe: ", strerror(errno));
    return 1;
  }
  return find_node(path) && find_server(path) ? 0 : 127;
}
