/* `holdfast-monitor pause`: makes the namespaces of a pod and gives each a name, <base>/{ipc,pid,net,user,uts}ns/<pod id>, by
 * bind mounts; those that were not asked for are the host's. No process stays: net, ipc and uts need none. Pid and user
 * namespaces do, and are not supported yet. On failure nothing is left mounted. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/magic.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef NSFS_MAGIC
#define NSFS_MAGIC 0x6e736673
#endif

enum { FAILED_RUN = 1, USAGE = 2 };

enum kind { IPC, PID, NET, USER, UTS, KINDS };

static const struct {
  const char *name;
  int flag;
} namespaces[KINDS] = {
  [IPC] = { "ipc", CLONE_NEWIPC }, [PID] = { "pid", CLONE_NEWPID },   [NET] = { "net", CLONE_NEWNET },
  [USER] = { "user", CLONE_NEWUSER }, [UTS] = { "uts", CLONE_NEWUTS },
};

struct request {
  const char *base;
  const char *pod_id;
  bool wanted[KINDS];
  bool mappings;
};

/* What is to be undone. */
static char named[KINDS][PATH_MAX];
static bool mounted[KINDS];

static void undo(void)
{
  for (int i = 0; i < KINDS; i++) {
    if (named[i][0] == '\0') {
      continue;
    }
    if (mounted[i]) {
      (void)umount2(named[i], MNT_DETACH);
    }
    unlink(named[i]);
  }
}

/* ---- options ---- */

static bool is_set(const char *variable)
{
  static const char *const no[] = { "", "0", "n", "no", "f", "false", "off" };
  const char *value = getenv(variable);
  for (size_t i = 0; value != NULL && i < sizeof no / sizeof *no; i++) {
    if (strcasecmp(value, no[i]) == 0) {
      return false;
    }
  }
  return value != NULL;
}

static bool parse(int argc, char **argv, struct request *request)
{
  static const struct option options[] = {
    { "base-path", required_argument, NULL, 'p' },
    { "pod-id", required_argument, NULL, 'i' },
    { "ipc", no_argument, NULL, 1000 + IPC },
    { "pid", no_argument, NULL, 1000 + PID },
    { "net", no_argument, NULL, 1000 + NET },
    { "user", no_argument, NULL, 1000 + USER },
    { "uts", no_argument, NULL, 1000 + UTS },
    { "uid-mappings", required_argument, NULL, 'u' },
    { "gid-mappings", required_argument, NULL, 'g' },
    { NULL, 0, NULL, 0 },
  };
  int option;
  const char *base = getenv("CONMON_PAUSE_BASE_PATH");
  request->base = base != NULL ? base : "/var/run";
  request->pod_id = getenv("CONMON_PAUSE_POD_ID");
  request->wanted[IPC] = is_set("CONMON_PAUSE_IPC");
  request->wanted[PID] = is_set("CONMON_PAUSE_PID");
  request->wanted[NET] = is_set("CONMON_PAUSE_NET");
  request->wanted[USER] = is_set("CONMON_PAUSE_USER");
  request->wanted[UTS] = is_set("CONMON_PAUSE_UTS");
  opterr = 0;
  while ((option = getopt_long(argc, argv, "+p:u:g:", options, NULL)) != -1) {
    if (option == 'p') {
      request->base = optarg;
    } else if (option == 'i') {
      request->pod_id = optarg;
    } else if (option == 'u' || option == 'g') {
      request->mappings = true;
    } else if (option >= 1000) {
      request->wanted[option - 1000] = true;
    } else {
      COMPLAIN("error: unexpected argument '", argv[optind - 1], "' found");
      return false;
    }
  }
  if (optind < argc) {
    COMPLAIN("error: unexpected argument '", argv[optind], "' found");
    return false;
  }
  const char *id = request->pod_id;
  if (id == NULL || id[0] == '\0') {
    COMPLAIN("error: no pod ID provided: --pod-id is required");
    return false;
  }
  if (strchr(id, '/') != NULL || strcmp(id, ".") == 0 || strcmp(id, "..") == 0) {
    COMPLAIN("error: pod ID '", id, "' cannot name a file");
    return false;
  }
  return true;
}

/* ---- files and mounts ---- */

static int complain_of(const char *what, const char *path)
{
  int error = errno;
  COMPLAIN("create namespaces: ", what, " ", path, ": ", strerror(error));
  return FAILED_RUN;
}

/* Like mkdir -p. */
static bool make_directories(char *path)
{
  for (char *slash = path + 1;; slash++) {
    if (*slash != '/' && *slash != '\0') {
      continue;
    }
    char c = *slash;
    *slash = '\0';
    bool made = mkdir(path, 0755) == 0 || errno == EEXIST;
    *slash = c;
    if (!made || c == '\0') {
      return made;
    }
  }
}

static bool name_file(char *to, const struct request *request, int kind)
{
  const char *const parts[] = { request->base, "/", namespaces[kind].name, "ns", "/", request->pod_id };
  size_t length = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    size_t n = strlen(parts[i]);
    if (length + n >= PATH_MAX) {
      errno = ENAMETOOLONG;
      return false;
    }
    memcpy(to + length, parts[i], n + 1);
    length += n;
  }
  return true;
}

static bool make_parent(char *path)
{
  char *slash = strrchr(path, '/');
  *slash = '\0';
  bool made = make_directories(path);
  *slash = '/';
  return made;
}

/* A monitor that was killed has left its mounts: the name is ours now. Anything but a mount point's empty file stays. */
static void release_name(const char *path)
{
  struct statfs fs;
  struct stat st;
  while (statfs(path, &fs) == 0 && fs.f_type == NSFS_MAGIC && umount2(path, MNT_DETACH) == 0) {
  }
  if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && statfs(path, &fs) == 0 &&
      fs.f_type != NSFS_MAGIC) {
    unlink(path);
  }
}

static int bind_namespace(const struct request *request, int kind)
{
  char source[32] = "/proc/self/ns/";
  char path[PATH_MAX];
  strcat(source, namespaces[kind].name);
  if (!name_file(path, request, kind)) {
    return complain_of("name", namespaces[kind].name);
  }
  if (!make_parent(path)) {
    return complain_of("make the parents of", path);
  }
  release_name(path);
  int fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  if (fd < 0) {
    return complain_of("create", path);
  }
  close(fd);
  strcpy(named[kind], path);
  if (mount(source, path, NULL, MS_BIND, NULL) < 0) {
    return complain_of("mount", path);
  }
  mounted[kind] = true;
  return 0;
}

/* A new network namespace has a loopback that is down. */
static int raise_loopback(void)
{
  struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  int failed = fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0;
  if (failed) {
    complain_of("raise", "lo");
  }
  close_fd(&fd);
  return failed ? FAILED_RUN : 0;
}

static int make_namespaces(const struct request *request)
{
  int flags = 0;
  for (int i = 0; i < KINDS; i++) {
    flags |= request->wanted[i] ? namespaces[i].flag : 0;
  }
  if (flags != 0 && unshare(flags) < 0) {
    return complain_of("unshare for pod", request->pod_id);
  }
  int code = request->wanted[NET] ? raise_loopback() : 0;
  for (int i = 0; i < KINDS && code == 0; i++) {
    code = bind_namespace(request, i);
  }
  if (code != 0) {
    undo();
  }
  return code;
}

int podinit_main(int argc, char **argv)
{
  struct request request = { 0 };
  if (!parse(argc, argv, &request)) {
    return USAGE;
  }
  if (request.wanted[PID] || request.wanted[USER] || request.mappings) {
    COMPLAIN("create namespaces: pod ", request.pod_id, ": pid and user namespaces are not supported yet");
    return FAILED_RUN;
  }
  umask(022);
  return make_namespaces(&request);
}
