/* A stream's copy for the server, into a unix stream socket: a gapless range of its bytes. Beside a log it may hold the stream
 * up for its patience only, then it is lost; a stream without a log waits for it, and never loses a byte. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t parked_bytes;   /* of copies with a limited patience */
static size_t reserved_bytes; /* for the others, in advance: what was read must have a place */

static uint32_t unsent(const struct stream *s)
{
  return s->rest_bytes - s->rest_offset;
}

static void unpark(struct stream *s)
{
  if (s->parked) {
    unwatch_fd(s->copy);
    s->parked = false;
  }
}

static void park(struct stream *s)
{
  s->parked = true;
  s->stalled_since = monotonic();
  watch_fd(s->copy, EPOLLOUT, &s->copy_source);
  if (!is_patient(s)) {
    wake_by(s->stalled_since + s->patience_ms * MS);
  }
}

/* A patient stream keeps its buffer. */
static void forget_rest(struct stream *s)
{
  if (!is_patient(s) && s->rest != NULL) {
    parked_bytes -= s->rest_bytes;
    free(s->rest);
    s->rest = NULL;
  }
  s->rest_bytes = 0;
  s->rest_offset = 0;
}

/* Ends the copy. `shutdown`, because the server may still have the socket open, too. */
void end_copy(struct stream *s, bool lost)
{
  if (s->copy < 0) {
    return;
  }
  if (lost) {
    s->lost = true;
    s->lost_at = s->bytes - unsent(s);
  }
  unpark(s);
  shutdown(s->copy, SHUT_WR);
  close_fd(&s->copy);
  if (!is_patient(s)) {
    forget_rest(s);
  }
  mark_pump(s->entry);
  update_reading(s);
}

/* Room for what the copy did not take. A patient stream has it already. */
static bool reserve_rest(struct stream *s, size_t length)
{
  if (is_patient(s)) {
    return true;
  }
  if (s->patience_ms > 0 && parked_bytes + length <= MAX_PARKED_BYTES) {
    s->rest = malloc(length);
  }
  if (s->rest != NULL) {
    parked_bytes += length;
  }
  return s->rest != NULL;
}

/* After the log; s->bytes counts `text` already. */
void copy_text(struct stream *s, const char *text, size_t length)
{
  ssize_t r = send(s->copy, text, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (r == (ssize_t)length) {
    return;
  }
  bool gone = r < 0 && errno != EAGAIN && errno != EINTR;
  if (gone && !is_patient(s)) {
    end_copy(s, false);
    return;
  }
  size_t sent = r > 0 ? (size_t)r : 0;
  bool kept = reserve_rest(s, length - sent);
  s->rest_bytes = (uint32_t)(length - sent);
  s->rest_offset = 0;
  if (!kept) {
    end_copy(s, true);
    return;
  }
  memcpy(s->rest, text + sent, length - sent);
  if (gone) {
    /* These bytes are for the next copy. */
    end_copy(s, false);
    return;
  }
  park(s);
  update_reading(s);
}

/* The parked copy has room, or is gone. */
void copy_has_room(struct stream *s)
{
  ssize_t r = send(s->copy, s->rest + s->rest_offset, unsent(s), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (r < 0) {
    if (errno != EAGAIN && errno != EINTR) {
      end_copy(s, false);
    }
    return;
  }
  s->stalled_since = monotonic();
  s->rest_offset += (uint32_t)r;
  if (unsent(s) > 0) {
    return;
  }
  unpark(s);
  forget_rest(s);
  if (s->ended) {
    end_copy(s, false);
  }
  update_reading(s);
}

/* A socket: MSG_DONTWAIT needs no trust in a flag that others share. */
static bool is_stream_socket(int fd)
{
  int type = 0;
  int domain = 0;
  socklen_t length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
         getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

static int reserve_patient(struct stream *s)
{
  if (!is_patient(s) || s->rest != NULL) {
    return 0;
  }
  if (reserved_bytes + UNLOGGED_READ_BYTES > MAX_UNLOGGED_BYTES) {
    return ENOSPC;
  }
  s->rest = malloc(UNLOGGED_READ_BYTES);
  if (s->rest == NULL) {
    return ENOMEM;
  }
  reserved_bytes += UNLOGGED_READ_BYTES;
  return 0;
}

/* From here on, or, without a descriptor, no longer. */
int start_copy(struct entry *e, uint64_t number, uint64_t patience_ms, int *fd)
{
  if (e->pump == NULL || number > 1) {
    return EINVAL;
  }
  struct stream *s = &e->pump->stream[number];
  if (*fd < 0) {
    end_copy(s, false);
    return 0;
  }
  if (!is_stream_socket(*fd)) {
    return EINVAL;
  }
  if (s->in < 0 && (!is_patient(s) || unsent(s) == 0)) {
    return s->ended ? ESHUTDOWN : EINVAL;
  }
  int error = reserve_patient(s);
  if (error != 0) {
    return error;
  }
  end_copy(s, false);
  s->copy = *fd;
  *fd = -1;
  s->lost = false;
  s->copy_from = s->bytes - unsent(s);
  s->patience_ms = patience_ms > MAX_PATIENCE_MS ? MAX_PATIENCE_MS : (uint32_t)patience_ms;
  if (unsent(s) > 0) {
    park(s);
  }
  update_reading(s);
  mark_pump(e);
  return 0;
}

void free_copy(struct stream *s)
{
  end_copy(s, false);
  if (s->rest != NULL) {
    reserved_bytes -= UNLOGGED_READ_BYTES;
    free(s->rest);
    s->rest = NULL;
  }
}

void copy_timers(struct stream *s, uint64_t now)
{
  if (!s->parked || is_patient(s)) {
    return;
  }
  uint64_t deadline = s->stalled_since + s->patience_ms * MS;
  if (now >= deadline) {
    end_copy(s, true);
  } else {
    wake_by(deadline);
  }
}
