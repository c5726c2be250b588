/* The keeper's main program: one loop over one epoll set, one event at a time, so that no event can point at what an
 * earlier one has freed. It knows no RPC, no JSON, no container. What it holds is in the other files; PROTOCOL.md says why. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

static int epoll = -1;
static int signals = -1;
static struct source signal_source = { SOURCE_SIGNALS };
static uint64_t timer_at; /* 0: none */
static uint64_t busy_at;  /* when the buffers were last used; 0: they have been given back */

static uint64_t nanoseconds(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t monotonic(void)
{
  return nanoseconds(CLOCK_MONOTONIC);
}

uint64_t realtime(void)
{
  return nanoseconds(CLOCK_REALTIME);
}

void wake_by(uint64_t when)
{
  if (timer_at == 0 || when < timer_at) {
    timer_at = when;
  }
}

void watch_fd(int fd, uint32_t events, struct source *source)
{
  struct epoll_event event = { .events = events, .data = { .ptr = source } };
  (void)epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

void rewatch_fd(int fd, uint32_t events, struct source *source)
{
  struct epoll_event event = { .events = events, .data = { .ptr = source } };
  (void)epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
}

/* Needed before each close: a descriptor that somebody else has, too, would stay in the set. */
void unwatch_fd(int fd)
{
  (void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
}

void close_fd(int *fd)
{
  if (*fd >= 0) {
    close(*fd);
  }
  *fd = -1;
}

void touched_buffers(void)
{
  busy_at = monotonic();
  wake_by(busy_at + TRIM_AFTER);
}

/* The buffers are whole pages: MADV_DONTNEED rounds its length up and would take a neighbour with it. */
static void trim_buffers(uint64_t now)
{
  if (busy_at == 0) {
    return;
  }
  if (now < busy_at + TRIM_AFTER) {
    wake_by(busy_at + TRIM_AFTER);
    return;
  }
  madvise(input_buffer, MAX_LINE_BYTES + READ_BYTES + SLACK_BYTES, MADV_DONTNEED);
  madvise(output_buffer, OUTPUT_BYTES + SLACK_BYTES, MADV_DONTNEED);
  busy_at = 0;
}

static void run_timers(void)
{
  uint64_t now = monotonic();
  timer_at = 0;
  pump_timers(now);
  trim_buffers(now);
  forget_orphans(now);
  server_timers(now);
}

static void take_signals(void)
{
  struct signalfd_siginfo info;
  uint64_t mask = 0;
  while (read(signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) {
      mask |= 1ull << info.ssi_signo;
    }
  }
  reap();
  if (mask != 0) {
    signals_came(mask);
  }
}

static struct stream *stream_of_copy(struct source *source)
{
  return (struct stream *)(void *)((char *)source - offsetof(struct stream, copy_source));
}

static void handle_event(struct source *source)
{
  switch (source->kind) {
  case SOURCE_SIGNALS:
    take_signals();
    break;
  case SOURCE_CHANNEL:
    /* Not for ever: containers want to be read, too. While an answer waits for room, nothing more is taken in. */
    for (int i = 0; i < 32 && !reply_pending() && channel_input(); i++) {
    }
    break;
  case SOURCE_INPUT:
    pump_input((struct stream *)(void *)source);
    break;
  case SOURCE_COPY:
    copy_has_room(stream_of_copy(source));
    break;
  case SOURCE_HELD:
    if (server_state == SERVER_ASLEEP) {
      start_server();
    }
    break;
  }
}

static _Noreturn void run(void)
{
  for (;;) {
    struct epoll_event event;
    int timeout_ms = -1;
    channel_output();
    if (timer_at != 0) {
      uint64_t now = monotonic();
      timeout_ms = now >= timer_at ? 0 : (int)((timer_at - now + MS - 1) / MS);
    }
    int n = epoll_wait(epoll, &event, 1, timeout_ms);
    if (timer_at != 0 && monotonic() >= timer_at) {
      /* The event comes again: the set is level-triggered, and the timers may free what it points at. */
      run_timers();
    } else if (n > 0) {
      handle_event(event.data.ptr);
    }
  }
}

/* SIGHUP, SIGPIPE and SIGXFSZ (a log beyond RLIMIT_FSIZE is a write error like any other) must not end us. */
static bool take_over_signals(void)
{
  static const int wanted[] = { SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2 };
  sigset_t mask;
  sigemptyset(&mask);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    /* An ignored SIGCHLD, inherited from whoever started us, would throw the statuses away. */
    signal(wanted[i], SIG_DFL);
    sigaddset(&mask, wanted[i]);
  }
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  if (signals < 0 || epoll < 0) {
    return false;
  }
  watch_fd(signals, EPOLLIN, &signal_source);
  return true;
}

/* A descriptor that we open must never become stdin, stdout or stderr of somebody. */
static void fill_stdio(void)
{
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO && fcntl(fd, F_SETFD, 0) == 0);
  close_fd(&fd);
}

int main(int argc, char **argv)
{
  fill_stdio();
  if (argc > 1 && strcmp(argv[1], "pause") == 0) {
    return podinit_main(argc - 1, argv + 1);
  }
  if (argc > 1 && strcmp(argv[1], "run-oci") == 0) {
    return run_oci_main(argc - 1, argv + 1);
  }
  umask(022);
  int code = launch(argc, argv);
  if (code >= 0) {
    return code;
  }
  if (!take_over_signals() || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
    static const char text[] = "start keeper: the kernel refused signalfd, epoll or the subreaper flag";
    report_failed(1, text, sizeof text - 1);
    return 1;
  }
  lower_oom_score();
  start_server();
  run();
}
