/* What the server says: one message at a time, checked, done, answered. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
  MAX_RECEIVED_FDS = 16, /* more are cut off by the kernel, which tells */
};

struct message {
  struct header header;
  const char *name;
  const char *payload;
  size_t length; /* of the payload */
  int fd[MAX_RECEIVED_FDS];
};

/* Built aside, then swapped in: a refused message changes nothing. */
static int hold(struct message *m)
{
  struct entry *old = find_entry(m->name, m->header.name_length);
  struct entry *e = make_entry(m->name, m->header.name_length, old != NULL);
  if (e == NULL) {
    return ENOSPC;
  }
  int error = set_record(e, m->payload, m->length);
  if (error != 0) {
    drop_entry(e);
    return error;
  }
  if (old != NULL) {
    drop_entry(old);
  }
  e->fd = m->fd[0];
  m->fd[0] = -1;
  e->wake = e->fd >= 0 && (m->header.flags & FLAG_WAKE) != 0;
  return 0;
}

static int pump(struct message *m)
{
  static const uint16_t bit[] = { FLAG_OUT, FLAG_ERR, FLAG_LOG, FLAG_DIRECTORY };
  struct opened fds;
  int *slot[] = { &fds.out, &fds.err, &fds.log, &fds.directory };
  int used[4] = { -1, -1, -1, -1 };
  int count = 0;
  for (int i = 0; i < 4; i++) {
    bool there = (m->header.flags & bit[i]) != 0;
    used[i] = there ? count++ : -1;
    *slot[i] = there && count <= m->header.fd_count ? m->fd[used[i]] : -1;
  }
  size_t leaf = (m->header.flags & FLAG_DIRECTORY) != 0 ? m->header.c : 0;
  if (count != m->header.fd_count || leaf > m->length) {
    return EINVAL;
  }
  struct entry *old = find_entry(m->name, m->header.name_length);
  struct entry *e = make_entry(m->name, m->header.name_length, old != NULL);
  if (e == NULL) {
    return ENOSPC;
  }
  int error = set_record(e, m->payload + leaf, m->length - leaf);
  error = error != 0 ? error : make_pump(e, &m->header, m->payload, &fds);
  for (int i = 0; i < 4; i++) {
    if (used[i] >= 0) {
      m->fd[used[i]] = *slot[i]; /* -1 where the pump has taken it */
    }
  }
  if (error != 0) {
    drop_entry(e);
  } else if (old != NULL) {
    drop_entry(old);
  }
  return error;
}

/* Messages about an entry that must exist. */
static int handle_entry(struct message *m)
{
  struct entry *e = find_entry(m->name, m->header.name_length);
  if (e == NULL) {
    return ENOENT;
  }
  switch (m->header.type) {
  case RECORD:
    return set_record(e, m->payload, m->length);
  case DROP:
    drop_entry(e);
    return 0;
  case RELOG:
    return relog(e, &m->fd[0]);
  default:
    return start_copy(e, m->header.a, m->header.b, &m->fd[0]);
  }
}

static int handle(struct message *m)
{
  const struct header *h = &m->header;
  int error;
  switch (h->type) {
  case HOLD:
    return hold(m);
  case PUMP:
    return pump(m);
  case RECORD:
  case DROP:
  case RELOG:
  case COPY:
    return handle_entry(m);
  case WATCH:
    return watch_pid(h->a);
  case CLAIMED:
    return claim(h->a);
  case KILL:
    return kill_child(h->a, h->b);
  case READY:
    error = set_paths(m->payload, m->length);
    if (error == 0) {
      server_is_ready((h->flags & FLAG_KEEP_STDOUT) != 0);
    }
    return error;
  case FAILED:
    server_has_failed((int)(h->a & 0xff), m->payload, m->length);
    return 0;
  case SLEEP:
    server_will_sleep(h->a);
    return 0;
  case QUIT:
    server_will_quit((int)(h->a & 0xff));
    return 0;
  case SIGACK:
    signals_done(h->a);
    return 0;
  default:
    return ENOSYS;
  }
}

/* What a message of this type must and may have. */
static int check(const struct message *m)
{
  const struct header *h = &m->header;
  bool named = h->type == HOLD || h->type == PUMP || (h->type >= RECORD && h->type <= COPY);
  unsigned most = h->type == PUMP ? 4 : h->type == HOLD || h->type == RELOG || h->type == COPY ? 1 : 0;
  if (h->name_length > MAX_NAME_BYTES) {
    return ENAMETOOLONG;
  }
  if (named != (h->name_length > 0) && h->type <= SIGACK) {
    return EINVAL;
  }
  return h->type <= SIGACK && h->fd_count > most ? EINVAL : 0;
}

static unsigned take_fds(struct msghdr *message, int *to)
{
  unsigned count = 0;
  for (int i = 0; i < MAX_RECEIVED_FDS; i++) {
    to[i] = -1;
  }
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
      count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      memcpy(to, CMSG_DATA(c), count * sizeof(int));
    }
  }
  return count;
}

/* One received message. Returns an errno or 0. */
static int take_message(struct message *m, struct msghdr *received, size_t length)
{
  const char *bytes = received->msg_iov->iov_base;
  unsigned count = take_fds(received, m->fd);
  m->header = (struct header){ 0 };
  if (length < sizeof m->header) {
    return EPROTO;
  }
  memcpy(&m->header, bytes, sizeof m->header);
  for (unsigned i = 0; i < count; i++) {
    if (m->fd[i] >= fd_limit) {
      return EMFILE; /* the last ones are spared for restarting the server */
    }
  }
  if ((received->msg_flags & MSG_CTRUNC) != 0 || count > MAX_MESSAGE_FDS) {
    return EMFILE;
  }
  if ((received->msg_flags & MSG_TRUNC) != 0) {
    return EMSGSIZE;
  }
  if (m->header.fd_count != count || sizeof m->header + m->header.name_length > length) {
    return EPROTO;
  }
  m->name = bytes + sizeof m->header;
  m->payload = m->name + m->header.name_length;
  m->length = length - sizeof m->header - m->header.name_length;
  int error = check(m);
  return error != 0 ? error : handle(m);
}

/* Takes one message; false: there is none. */
bool channel_input(void)
{
  union {
    char bytes[CMSG_SPACE(sizeof(int) * MAX_RECEIVED_FDS)];
    struct cmsghdr header;
  } control;
  struct iovec vector = { input_buffer, MAX_LINE_BYTES + READ_BYTES };
  struct msghdr received = { .msg_iov = &vector, .msg_iovlen = 1 };
  struct message m;
  ssize_t n;
  if (channel < 0) {
    return false;
  }
  do {
    received.msg_control = control.bytes;
    received.msg_controllen = sizeof control.bytes;
    n = recvmsg(channel, &received, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    /* When the peer has died with unread input, ECONNRESET comes before the messages that are still there. */
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n <= 0) {
    if (n == 0 || errno != EAGAIN) {
      /* The end of the channel is the end of the server; one that is leaving anyway keeps its exit code. */
      close_channel();
      kill_server();
    }
    return false;
  }
  touched_buffers();
  cut_last_words();
  int error = take_message(&m, &received, (size_t)n);
  for (int i = 0; i < MAX_RECEIVED_FDS; i++) {
    close_fd(&m.fd[i]);
  }
  if (error != 0 || (m.header.flags & FLAG_ACK) != 0) {
    answer(m.header.tag, error);
  }
  return true;
}
