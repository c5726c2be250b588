/* Every process of the pod ends up as the keeper's child. Statuses are kept under a number, because pids are used again:
 * watched ones until they are claimed, the others for a while, so that a process may be over before its pid is known. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct gone *watched_exits;
static struct gone **watched_end = &watched_exits;
static uint32_t watched_count; /* living and gone */

static struct gone *orphans; /* the oldest first */
static struct gone **orphans_end = &orphans;
static uint32_t orphan_count;

static int *living; /* watched pids */
static uint32_t living_count;
static uint32_t living_room;

static uint64_t next_number = 1;

static void append_watched(struct gone *g)
{
  g->next = NULL;
  *watched_end = g;
  watched_end = &g->next;
}

static void append_orphan(struct gone *g)
{
  g->next = NULL;
  *orphans_end = g;
  orphans_end = &g->next;
  orphan_count++;
}

static struct gone *unlink_orphan(struct gone **link)
{
  struct gone *g = *link;
  *link = g->next;
  if (orphans_end == &g->next) {
    orphans_end = link;
  }
  orphan_count--;
  return g;
}

/* A pod without a pid namespace of its own may leave thousands of short daemons; a fast exec's status is among them. */
void forget_orphans(uint64_t now)
{
  while (orphan_count > MAX_YOUNG_ORPHANS ||
         (orphan_count > MAX_OLD_ORPHANS && now - orphans->stored > YOUNG_ORPHAN)) {
    free(unlink_orphan(&orphans));
  }
  if (orphan_count > MAX_OLD_ORPHANS) {
    wake_by(orphans->stored + YOUNG_ORPHAN + MS);
  }
}

static int find_living(int pid)
{
  for (uint32_t i = 0; i < living_count; i++) {
    if (living[i] == pid) {
      return (int)i;
    }
  }
  return -1;
}

static void store_exit(int pid, int status)
{
  int i = find_living(pid);
  struct gone *g = malloc(sizeof *g);
  if (i >= 0) {
    living[i] = living[--living_count];
  }
  if (g == NULL) {
    /* Out of memory: a status is lost, the keeper lives. */
    watched_count -= i >= 0;
    return;
  }
  *g = (struct gone){ .number = next_number++, .when = realtime(), .stored = monotonic(), .pid = pid, .status = status };
  if (i >= 0) {
    append_watched(g);
    tell(TELL_EXITS);
    want_server();
  } else {
    append_orphan(g);
    forget_orphans(g->stored);
  }
}

/* SIGCHLD is not queued per child: sweep until nothing is left. */
void reap(void)
{
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == server_pid) {
      server_died(status);
    } else {
      store_exit(pid, status);
    }
  }
}

/* A living child or one that is about to be reaped. The server is not the server's business. */
static bool is_child(uint64_t pid)
{
  siginfo_t info = { 0 };
  return pid > 0 && pid <= INT32_MAX && (pid_t)pid != server_pid &&
         waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static bool is_living_child(uint64_t pid)
{
  siginfo_t info = { 0 };
  return is_child(pid) && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static int watch_living(int pid)
{
  if (find_living(pid) >= 0) {
    return 0;
  }
  if (watched_count >= MAX_WATCHED) {
    return ENOSPC;
  }
  if (living_count == living_room) {
    uint32_t room = living_room == 0 ? 16 : living_room * 2;
    int *more = realloc(living, sizeof *living * room);
    if (more == NULL) {
      return ENOMEM;
    }
    living = more;
    living_room = room;
  }
  living[living_count++] = pid;
  watched_count++;
  return 0;
}

int watch_pid(uint64_t pid)
{
  if (is_child(pid)) {
    return watch_living((int)pid);
  }
  /* Gone already. The newest of that pid counts: the number was used again since the others. */
  struct gone **newest = NULL;
  uint64_t number = 0;
  for (struct gone **link = &orphans; *link != NULL; link = &(*link)->next) {
    if ((uint64_t)(*link)->pid == pid) {
      newest = link;
      number = (*link)->number;
    }
  }
  for (struct gone *g = watched_exits; g != NULL; g = g->next) {
    if ((uint64_t)g->pid == pid && g->number > number) {
      return 0; /* watched before, told, not claimed yet */
    }
  }
  if (newest == NULL) {
    return ESRCH;
  }
  if (watched_count >= MAX_WATCHED) {
    return ENOSPC;
  }
  append_watched(unlink_orphan(newest));
  watched_count++;
  tell(TELL_EXITS);
  return 0;
}

int claim(uint64_t number)
{
  for (struct gone **link = &watched_exits; *link != NULL; link = &(*link)->next) {
    struct gone *g = *link;
    if (g->number != number) {
      continue;
    }
    *link = g->next;
    if (watched_end == &g->next) {
      watched_end = link;
    }
    watched_count--;
    free(g);
    return 0;
  }
  return ENOENT;
}

/* Nobody but us frees the pid of a child of ours, and not between these two calls: no stranger can be hit. */
int kill_child(uint64_t pid, uint64_t signal)
{
  if (!is_living_child(pid)) {
    return ESRCH;
  }
  if (signal > 64) {
    return EINVAL;
  }
  return kill((pid_t)pid, (int)signal) < 0 ? errno : 0;
}

/* Giving up: nobody will look after them. A container's first process mostly leads its own process group. */
void kill_watched(void)
{
  for (uint32_t i = 0; i < living_count; i++) {
    if (!is_living_child((uint64_t)living[i])) {
      continue;
    }
    if (getpgid(living[i]) == living[i]) {
      kill(-living[i], SIGKILL);
    }
    kill(living[i], SIGKILL);
  }
}

bool untold_exits(void)
{
  for (struct gone *g = watched_exits; g != NULL; g = g->next) {
    if (!g->told) {
      return true;
    }
  }
  return false;
}
