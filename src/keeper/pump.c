/* Container output: reads each stream to its end, gives it first to the log, then to the copy (copy.c). A stream without a
 * log is read only while a copy takes it. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

/* The unfinished line goes in front of what is read. */
char input_buffer[MAX_LINE_BYTES + READ_BYTES + SLACK_BYTES] __attribute__((aligned(4096)));
_Static_assert((MAX_LINE_BYTES + READ_BYTES + SLACK_BYTES) % 4096 == 0, "as for the output buffer");

bool is_logged(const struct stream *s)
{
  return s->entry->pump->log >= 0;
}

/* Must its output wait in the pipe while no copy takes it? */
bool is_patient(const struct stream *s)
{
  return !is_logged(s) && !s->entry->pump->discard;
}

/* Reads or stops reading, whatever is right now. */
void update_reading(struct stream *s)
{
  bool wanted = s->in >= 0 && !s->parked && (s->copy >= 0 || !is_patient(s));
  if (wanted && !s->reading) {
    watch_fd(s->in, EPOLLIN, &s->in_source);
  } else if (!wanted && s->reading) {
    unwatch_fd(s->in);
  }
  s->reading = wanted;
}

/* ---- the log ---- */

static void finish_line(struct stream *s, char tag)
{
  if (s->carry_bytes == 0 && !(tag == 'F' && s->line_open)) {
    return;
  }
  touched_buffers();
  log_begin(s->number);
  log_entry(s->entry, tag, s->carry, s->carry_bytes);
  log_flush(s->entry);
  s->line_open = tag == 'P';
  s->carry_bytes = 0;
  free(s->carry);
  s->carry = NULL;
}

/* `text` lies in the input buffer, with room for the unfinished line in front of it. */
static void log_text(struct stream *s, char *text, size_t length)
{
  char *begin = text - s->carry_bytes;
  log_begin(s->number);
  if (s->carry_bytes > 0) {
    memcpy(begin, s->carry, s->carry_bytes);
  }
  char *rest = log_lines(s->entry, s, begin, text + length);
  size_t left = (size_t)(text + length - rest);
  if (left > 0 && s->carry == NULL) {
    s->carry = malloc(MAX_LINE_BYTES);
    if (s->carry == NULL) {
      log_entry(s->entry, 'P', rest, left);
      s->line_open = true;
      left = 0;
    }
  }
  log_flush(s->entry);
  s->carry_bytes = (uint32_t)left;
  if (left > 0) {
    memcpy(s->carry, rest, left);
    s->carry_since = monotonic();
    wake_by(s->carry_since + PARTIAL_AFTER);
  } else {
    free(s->carry);
    s->carry = NULL;
  }
}

/* ---- reading ---- */

/* Returns the bytes read; *ended: nothing will follow. EIO is how a terminal ends. A terminal gives 4 KiB at a time. */
static size_t read_input(struct stream *s, char *to, size_t most, bool *ended)
{
  size_t n = 0;
  ssize_t r;
  do {
    r = read(s->in, to + n, most - n);
    if (r > 0) {
      n += (size_t)r;
    }
  } while ((r < 0 && errno == EINTR) || (r > 0 && s->terminal && n < most));
  *ended = r == 0 || (r < 0 && errno != EAGAIN);
  return n;
}

static void end_stream(struct stream *s)
{
  if (is_logged(s)) {
    finish_line(s, 'F');
  }
  if (s->reading) {
    unwatch_fd(s->in);
    s->reading = false;
  }
  close_fd(&s->in);
  s->ended = true;
  mark_pump(s->entry);
  if (!s->parked) {
    end_copy(s, false);
  }
}

/* Every byte may be a newline, every newline an entry, and a small limit many files: at most about 20 a read. */
static size_t most_to_read(const struct stream *s)
{
  uint64_t limit = s->entry->pump->limit;
  if (is_patient(s)) {
    return UNLOGGED_READ_BYTES;
  }
  if (limit == 0 || limit / 3 > READ_BYTES) {
    return READ_BYTES;
  }
  return limit / 3 > 64 ? (size_t)(limit / 3) : 64;
}

/* Some turns, not for ever: others want to be read, too. */
void pump_input(struct stream *s)
{
  size_t most = most_to_read(s);
  int turns = most == READ_BYTES ? 4 : 1;
  touched_buffers();
  for (int turn = 0; turn < turns && s->reading; turn++) {
    char *text = input_buffer + MAX_LINE_BYTES;
    bool ended;
    size_t n = read_input(s, text, most, &ended);
    s->bytes += n;
    if (n > 0 && is_logged(s)) {
      log_text(s, text, n);
    }
    if (n > 0 && s->copy >= 0) {
      copy_text(s, text, n);
    }
    if (ended) {
      end_stream(s);
    }
    if (n < most / 2) {
      break;
    }
  }
}

/* The monitor ends: what lies in the pipes now belongs into the logs. */
void finish_pumps(void)
{
  for (struct entry *e = entries; e != NULL; e = e->next) {
    for (int i = 0; e->pump != NULL && i < 2; i++) {
      struct stream *s = &e->pump->stream[i];
      if (s->in < 0 || !is_logged(s)) {
        continue;
      }
      end_copy(s, false);
      uint64_t enough = s->bytes + (1 << 20);
      uint64_t before;
      do {
        before = s->bytes;
        pump_input(s);
      } while (s->reading && s->bytes > before && s->bytes < enough);
      finish_line(s, 'F');
    }
  }
}

/* ---- the life of a pump ---- */

/* What can be waited for and has an end. */
static bool is_input(int fd)
{
  struct stat st;
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY && fstat(fd, &st) == 0 &&
         (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || (S_ISCHR(st.st_mode) && isatty(fd)));
}

/* Only a file never blocks for ever. */
static bool is_log(int fd, struct stat *st)
{
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(fd, st) == 0 && S_ISREG(st->st_mode) &&
         fcntl(fd, F_SETFL, flags | O_APPEND) == 0;
}

static bool is_directory(int fd)
{
  struct stat st;
  return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_leaf(const char *leaf, size_t length)
{
  return length > 0 && length <= MAX_LEAF_BYTES && memchr(leaf, '/', length) == NULL &&
         memchr(leaf, '\0', length) == NULL && !(leaf[0] == '.' && (length == 1 || (length == 2 && leaf[1] == '.')));
}

static int check_pump(const struct header *h, const char *leaf, const struct opened *fds, struct stat *log)
{
  if (fds->out < 0 && fds->err < 0) {
    return EINVAL;
  }
  if ((fds->out >= 0 && !is_input(fds->out)) || (fds->err >= 0 && !is_input(fds->err))) {
    return EINVAL;
  }
  if (fds->log >= 0 && !is_log(fds->log, log)) {
    return EINVAL;
  }
  if (fds->directory >= 0 && (fds->log < 0 || !is_directory(fds->directory) || !is_leaf(leaf, h->c))) {
    return EINVAL;
  }
  return h->b != 0 && fds->directory < 0 ? EINVAL : 0;
}

static int take(int *fd)
{
  int taken = *fd;
  *fd = -1;
  return taken;
}

static void make_stream(struct entry *e, int number, int *in, bool terminal)
{
  struct stream *s = &e->pump->stream[number];
  s->in_source.kind = SOURCE_INPUT;
  s->copy_source.kind = SOURCE_COPY;
  s->entry = e;
  s->number = (uint8_t)number;
  s->terminal = terminal;
  s->copy = -1;
  s->in = take(in);
  if (s->in >= 0) {
    (void)fcntl(s->in, F_SETFL, fcntl(s->in, F_GETFL) | O_NONBLOCK);
    update_reading(s);
  }
}

/* Makes a fresh entry a pump. Refused, it has taken nothing. */
int make_pump(struct entry *e, const struct header *h, const char *leaf, struct opened *fds)
{
  struct stat log = { 0 };
  int error = check_pump(h, leaf, fds, &log);
  if (error != 0) {
    return error;
  }
  struct pump *p = calloc(1, sizeof *p);
  if (p == NULL) {
    return ENOMEM;
  }
  e->pump = p;
  p->log = take(&fds->log);
  p->directory = take(&fds->directory);
  p->discard = (h->flags & FLAG_DISCARD) != 0;
  p->size = (uint64_t)log.st_size;
  p->limit = h->b;
  if (p->directory >= 0) {
    memcpy(p->leaf, leaf, h->c);
  }
  make_stream(e, 0, &fds->out, (h->flags & FLAG_TERMINAL) != 0);
  make_stream(e, 1, &fds->err, false);
  return 0;
}

void free_pump(struct entry *e)
{
  struct pump *p = e->pump;
  for (int i = 0; i < 2; i++) {
    struct stream *s = &p->stream[i];
    if (s->in >= 0 && is_logged(s)) {
      finish_line(s, 'F');
    }
    end_copy(s, false);
    if (s->reading) {
      unwatch_fd(s->in);
    }
    close_fd(&s->in);
    free(s->carry);
    free_copy(s);
  }
  close_fd(&p->log);
  close_fd(&p->directory);
  free(p);
  e->pump = NULL;
}

int relog(struct entry *e, int *fd)
{
  struct stat st;
  if (e->pump == NULL || e->pump->log < 0 || *fd < 0 || !is_log(*fd, &st)) {
    return EINVAL;
  }
  struct pump *p = e->pump;
  close_fd(&p->log);
  p->log = take(fd);
  p->size = (uint64_t)st.st_size;
  p->generation++;
  p->error = 0;
  p->rotate_error = 0;
  p->rotate_after = 0;
  p->torn = false;
  mark_pump(e);
  return 0;
}

static void stream_timers(struct stream *s, uint64_t now)
{
  if (s->carry_bytes > 0) {
    if (now >= s->carry_since + PARTIAL_AFTER) {
      finish_line(s, 'P');
    } else {
      wake_by(s->carry_since + PARTIAL_AFTER);
    }
  }
  copy_timers(s, now);
}

void pump_timers(uint64_t now)
{
  for (struct entry *e = entries; e != NULL; e = e->next) {
    if (e->pump != NULL) {
      stream_timers(&e->pump->stream[0], now);
      stream_timers(&e->pump->stream[1], now);
    }
  }
}
