/* One server after the other: starts it, tells by its end what to do next, lets it sleep, and gives up where that is right.
 * Where it is found and how it is executed is launch.c's. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TERMINATING (1ull << SIGTERM | 1ull << SIGINT)

enum server_state server_state;
pid_t server_pid;
uint64_t pending_signals;
uint64_t told_signals;

static bool was_ready; /* some server was */
static uint64_t start_at; /* 0: no start is due */
static uint64_t started_at;
static uint64_t ready_at; /* 0: this server is not ready yet */
static uint64_t unready_since;
static uint64_t terminate_since;
static uint64_t leaving_since;
static uint64_t slept_at_count;
static unsigned quick_deaths;
static bool has_news; /* something came in this server's life: the next one does not wait */
static bool wants_sleep;
static bool wants_quit;
static int quit_code;
static int words = -1; /* the living server's stderr */
static char *failed_text;
static size_t failed_length;
static int failed_code = -1;
uint64_t incarnation;

static _Noreturn void leave(int code)
{
  finish_pumps();
  remove_paths();
  exit(code);
}

/* ---- last words ---- */

/* Keeps the newest half when there is too much. The file is O_APPEND: who writes goes on at its end. */
void cut_last_words(void)
{
  static const size_t keep = MAX_LAST_WORDS_BYTES / 2;
  struct stat st;
  if (words < 0 || fstat(words, &st) < 0 || st.st_size <= MAX_LAST_WORDS_BYTES) {
    return;
  }
  char *tail = malloc(keep);
  ssize_t n = tail == NULL ? 0 : pread(words, tail, keep, st.st_size - (off_t)keep);
  (void)!ftruncate(words, 0);
  if (n > 0) {
    (void)!write(words, tail, (size_t)n);
  }
  free(tail);
}

static size_t put(char *to, const char *text)
{
  size_t n = strlen(text);
  memcpy(to, text, n);
  return n;
}

/* `code N` or `signal N`. */
static size_t format_status(char *to, int status)
{
  bool exited = WIFEXITED(status);
  size_t n = put(to, exited ? "code " : "signal ");
  return n + format_number(to + n, (uint64_t)(exited ? WEXITSTATUS(status) : WTERMSIG(status)));
}

/* For the next server: what this one said on stderr, and how it died. */
static void keep_last_words(int status)
{
  static const char name[] = "last-words";
  char record[32];
  size_t n = format_status(record, status);
  cut_last_words();
  struct entry *old = find_entry(name, sizeof name - 1);
  if (old != NULL) {
    drop_entry(old);
  }
  struct entry *e = make_entry(name, sizeof name - 1, false);
  if (e != NULL) {
    (void)set_record(e, record, n);
    e->fd = words;
    e->untold_held = true;
    words = -1;
  }
  close_fd(&words);
}

/* ---- start ---- */

void start_server(void)
{
  int pair[2];
  if (server_state == SERVER_ASLEEP) {
    wake_on_entries(false);
  }
  server_state = SERVER_DOWN;
  start_at = monotonic() + BACKOFF_FIRST; /* if anything below fails */
  wake_by(start_at);
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
    return;
  }
  close_fd(&words);
  words = memfd_create("last-words", MFD_CLOEXEC);
  if (words >= 0) {
    (void)fcntl(words, F_SETFL, O_APPEND);
  }
  pid_t pid = fork();
  if (pid == 0) {
    exec_server(pair[1], words);
  }
  close(pair[1]);
  if (pid < 0) {
    close(pair[0]);
    return;
  }
  server_pid = pid;
  server_state = SERVER_STARTING;
  start_at = 0;
  started_at = monotonic();
  ready_at = 0;
  leaving_since = 0;
  wants_sleep = false;
  has_news = false;
  incarnation++;
  open_channel(pair[0]);
  mark_everything_untold();
  wake_by(started_at + START_LIMIT);
}

/* Something is there that a server should look at: no sleep and no back-off any more. */
void want_server(void)
{
  if (server_state == SERVER_ASLEEP) {
    start_server();
  } else if (server_state == SERVER_DOWN && start_at != 0) {
    start_at = monotonic();
    wake_by(start_at);
  } else {
    has_news = true;
  }
}

void kill_server(void)
{
  if (server_pid != 0) {
    kill(server_pid, SIGKILL);
  }
}

/* ---- what the server says of itself ---- */

void server_is_ready(bool keep_stdout)
{
  server_state = SERVER_UP;
  if (ready_at == 0) {
    ready_at = monotonic();
  }
  if (was_ready) {
    return;
  }
  was_ready = true;
  if (!report_ready(keep_stdout)) {
    /* The launcher was killed: whoever started it believes that there is no monitor. */
    kill_server();
    leave(1);
  }
}

void server_has_failed(int code, const char *text, size_t length)
{
  if (was_ready) {
    return; /* it will die, and be started again */
  }
  free(failed_text);
  failed_length = length > MAX_FAILED_BYTES ? MAX_FAILED_BYTES : length;
  failed_text = malloc(failed_length + 1);
  if (failed_text == NULL) {
    failed_length = 0;
  } else {
    memcpy(failed_text, text, failed_length);
  }
  failed_code = code & 0xff;
  leaving_since = monotonic();
  wake_by(leaving_since + LEAVE_LIMIT);
}

void server_will_sleep(uint64_t heard)
{
  wants_sleep = true;
  slept_at_count = heard;
}

void server_will_quit(int code)
{
  wants_quit = true;
  quit_code = code & 0xff;
  leaving_since = monotonic();
  wake_by(leaving_since + LEAVE_LIMIT);
}

/* ---- its end ---- */

/* The end of a server that nobody has seen ready is the end of the monitor. */
static _Noreturn void launch_failed(int status)
{
  static char text[MAX_FAILED_BYTES];
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (failed_code >= 0) {
    report_failed(failed_code, failed_text, failed_length);
    exit(failed_code);
  }
  cut_last_words();
  off_t size = words < 0 ? 0 : lseek(words, 0, SEEK_END);
  size_t n = 0;
  if (size > 0) {
    off_t from = size > (off_t)sizeof text - 128 ? size - ((off_t)sizeof text - 128) : 0;
    ssize_t r = pread(words, text, sizeof text - 128, from);
    n = r > 0 ? (size_t)r : 0;
  }
  if (n > 0 && text[n - 1] != '\n') {
    text[n++] = '\n';
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && monotonic() >= started_at + START_LIMIT) {
    n += put(text + n, "start server: it was not ready within 30 s");
  } else {
    n += put(text + n, "start server: it ended before it was ready, ");
    n += format_status(text + n, status);
  }
  code = code == 0 ? 1 : code;
  report_failed(code, text, n);
  exit(code);
}

static bool sleeper_missed_something(void)
{
  return told_count != slept_at_count || (pending_signals & ~told_signals) != 0 || untold_exits();
}

static void plan_restart(uint64_t now)
{
  uint64_t delay = 0;
  if (ready_at != 0 && now - ready_at >= QUICK_DEATH) {
    quick_deaths = 0;
  } else {
    if (quick_deaths > 0 && !has_news) {
      delay = BACKOFF_FIRST << (quick_deaths > 8 ? 7 : quick_deaths - 1);
    }
    quick_deaths++;
  }
  start_at = now + (delay > BACKOFF_MAX ? BACKOFF_MAX : delay) + 1;
  wake_by(start_at);
}

void server_died(int status)
{
  server_pid = 0; /* reaped: the number may be a stranger's by now */
  /* First everything that it still managed to say. */
  while (channel_input()) {
  }
  close_channel();
  uint64_t now = monotonic();
  if (server_state == SERVER_UP) {
    unready_since = now;
  }
  if (wants_quit) {
    if (!was_ready) {
      static const char text[] = "start server: it left before it was ready";
      report_failed(quit_code, text, sizeof text - 1);
    }
    leave(quit_code);
  }
  if (!was_ready) {
    launch_failed(status);
  }
  if (wants_sleep && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    close_fd(&words);
    quick_deaths = 0;
    if (sleeper_missed_something()) {
      start_server();
      return;
    }
    server_state = SERVER_ASLEEP;
    wake_on_entries(true);
    return;
  }
  server_state = SERVER_DOWN;
  keep_last_words(status);
  plan_restart(now);
  if (terminate_since != 0) {
    wake_by(now); /* for the time at which we give up */
  }
}

/* ---- signals and timers ---- */

void signals_came(uint64_t mask)
{
  pending_signals |= mask;
  told_signals &= ~mask;
  if ((mask & TERMINATING) != 0 && terminate_since == 0) {
    terminate_since = monotonic();
    wake_by(terminate_since + GIVE_UP_AFTER);
  }
  tell(TELL_SIGNALS);
  want_server();
}

void signals_done(uint64_t mask)
{
  pending_signals &= ~mask;
  told_signals &= ~mask;
  if ((pending_signals & TERMINATING) == 0) {
    terminate_since = 0;
  }
}

static _Noreturn void give_up(void)
{
  static const char text[] = "start server: told to end, and no server was ready within 8 s";
  kill_server();
  kill_watched();
  if (!was_ready) {
    report_failed(1, text, sizeof text - 1);
  }
  leave(1);
}

/* True when it is over, else the loop wakes up for it. */
static bool is_over(uint64_t deadline, uint64_t now)
{
  if (now >= deadline) {
    return true;
  }
  wake_by(deadline);
  return false;
}

void server_timers(uint64_t now)
{
  if (server_state != SERVER_UP && terminate_since != 0) {
    uint64_t since = terminate_since > unready_since ? terminate_since : unready_since;
    if (is_over(since + GIVE_UP_AFTER, now)) {
      give_up();
    }
  }
  if (server_state == SERVER_DOWN && start_at != 0 && is_over(start_at, now)) {
    start_server();
    return;
  }
  if (server_state == SERVER_STARTING && is_over(started_at + START_LIMIT, now)) {
    kill_server();
  }
  if (leaving_since != 0 && server_pid != 0 && is_over(leaving_since + LEAVE_LIMIT, now)) {
    kill_server();
  }
}
