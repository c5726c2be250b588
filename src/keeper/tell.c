/* What the server is told. Nothing is queued: every message is made from what is held when the socket has room, so a server
 * that does not read costs no memory, and no news can be lost with a server. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int channel = -1;
uint64_t told_count; /* messages to this server */
static struct source channel_source = { SOURCE_CHANNEL };
static unsigned to_tell;
static uint32_t watched_events;
static bool retry_later;
static bool peer_gone;

static struct {
  bool due;
  uint32_t tag;
  int error;
} reply;

struct piece {
  const void *bytes;
  size_t length;
};

/* False: no room now. */
static bool say(struct header h, struct piece name, struct piece first, struct piece second, int fd)
{
  struct iovec vector[4] = {
    { &h, sizeof h },
    { (void *)(uintptr_t)name.bytes, name.length },
    { (void *)(uintptr_t)first.bytes, first.length },
    { (void *)(uintptr_t)second.bytes, second.length },
  };
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
  } control;
  struct msghdr message = { .msg_iov = vector, .msg_iovlen = 4 };
  h.name_length = (uint16_t)name.length;
  if (fd >= 0) {
    h.fd_count = 1;
    memset(&control, 0, sizeof control);
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  }
  ssize_t r;
  do {
    r = sendmsg(channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (r < 0 && errno == EINTR);
  if (r >= 0) {
    told_count++;
    return true;
  }
  if (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM) {
    /* The socket may be writable all the same. */
    retry_later = true;
    wake_by(monotonic() + RETRY_AFTER);
  } else if (errno != EAGAIN) {
    peer_gone = true;
  }
  return false;
}

static bool say_plain(struct header h)
{
  static const struct piece none;
  return say(h, none, none, none, -1);
}

static uint16_t pump_flags(const struct pump *p)
{
  unsigned flags = FLAG_PUMP | (p->log >= 0 ? FLAG_LOG : 0);
  for (int i = 0; i < 2; i++) {
    const struct stream *s = &p->stream[i];
    flags |= s->in >= 0 ? (unsigned)FLAG_OUT << i : 0;
    flags |= s->ended ? (unsigned)FLAG_OUT_ENDED << i : 0;
    flags |= s->lost ? (unsigned)FLAG_OUT_LOST << i : 0;
    flags |= s->copy >= 0 ? (unsigned)FLAG_OUT_COPYING << i : 0;
  }
  return (uint16_t)flags;
}

static bool say_entry(const struct entry *e)
{
  static const struct piece none;
  uint64_t state[STATE_WORDS] = { 0 };
  struct header h = { .type = e->untold_held ? HELD : PUMPED, .flags = e->wake ? FLAG_WAKE : 0 };
  const struct pump *p = e->pump;
  if (p != NULL) {
    struct stat st;
    h.flags = pump_flags(p);
    h.tag = p->generation;
    h.c = (uint32_t)log_errno(p);
    h.a = p->size;
    h.b = p->limit;
    for (int i = 0; i < 2; i++) {
      state[STATE_BYTES + i] = p->stream[i].bytes;
      state[STATE_COPY_FROM + i] = p->stream[i].copy_from;
      state[STATE_LOST_AT + i] = p->stream[i].lost_at;
    }
    state[STATE_DROPPED] = p->dropped;
    if (p->log >= 0 && fstat(p->log, &st) == 0) {
      h.a = (uint64_t)st.st_size;
      state[STATE_INODE] = st.st_ino;
      state[STATE_DEVICE] = st.st_dev;
    }
  }
  struct piece name = { e->name, e->name_length };
  struct piece numbers = { state, p != NULL ? sizeof state : 0 };
  struct piece record = { e->record, e->record_bytes };
  return say(h, name, numbers, e->untold_held ? record : none, e->untold_held ? e->fd : -1);
}

static bool tell_entries(void)
{
  for (struct entry *e = entries; e != NULL; e = e->next) {
    if (e->untold_held || e->untold_pump) {
      if (!say_entry(e)) {
        return false;
      }
      e->untold_held = false;
      e->untold_pump = false;
    }
  }
  return true;
}

static bool tell_exits(void)
{
  static const struct piece none;
  for (struct gone *g = watched_exits; g != NULL; g = g->next) {
    if (g->told) {
      continue;
    }
    struct header h = { .type = EXITED, .a = g->number };
    h.b = (uint32_t)g->pid | (uint64_t)(uint32_t)g->status << 32;
    struct piece when = { &g->when, sizeof g->when };
    if (!say(h, none, when, none, -1)) {
      return false;
    }
    g->told = true;
  }
  return true;
}

static bool tell_signals(void)
{
  if ((pending_signals & ~told_signals) == 0) {
    return true;
  }
  struct header h = { .type = SIGNALLED, .a = pending_signals };
  if (!say_plain(h)) {
    return false;
  }
  told_signals = pending_signals;
  return true;
}

static bool tell_sync(void)
{
  struct header h = { .type = SYNC, .a = incarnation, .b = (uint64_t)getpid(), .c = PROTOCOL_VERSION };
  return say_plain(h);
}

static bool tell_reply(void)
{
  struct header h = { .type = DONE, .tag = reply.tag, .a = (uint64_t)reply.error };
  if (reply.due && !say_plain(h)) {
    return false;
  }
  reply.due = false;
  return true;
}

/* Tells what is to be told, as far as there is room. An answer comes after the news that its message has caused; `sync` is
 * the last: it means that all the rest was told. */
void channel_output(void)
{
  static const struct {
    unsigned what;
    bool (*tell)(void);
  } kinds[] = {
    { TELL_SIGNALS, tell_signals }, { TELL_EXITS, tell_exits }, { TELL_ENTRIES, tell_entries },
    { TELL_REPLY, tell_reply },     { TELL_SYNC, tell_sync },
  };
  if (channel < 0 || to_tell == 0) {
    return;
  }
  retry_later = false;
  bool full = false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !full; i++) {
    if ((to_tell & kinds[i].what) == 0) {
      continue;
    }
    full = !kinds[i].tell();
    to_tell &= full ? ~0u : ~kinds[i].what;
  }
  if (peer_gone) {
    /* Nothing can be told any more, but what it has sent is to be read to its end. */
    reply.due = false;
    to_tell = 0;
    full = false;
  }
  uint32_t events = (reply.due ? 0u : (uint32_t)EPOLLIN) | (full && !retry_later ? (uint32_t)EPOLLOUT : 0u);
  if (events != watched_events) {
    watched_events = events;
    rewatch_fd(channel, events, &channel_source);
  }
}

void tell(unsigned what)
{
  to_tell |= what;
}

bool reply_pending(void)
{
  return reply.due;
}

/* At once, if there is room: until then nothing more is taken in. */
void answer(uint32_t tag, int error)
{
  reply.due = true;
  reply.tag = tag;
  reply.error = error;
  tell(TELL_REPLY);
  channel_output();
}

void close_channel(void)
{
  if (channel >= 0) {
    unwatch_fd(channel);
    close_fd(&channel);
  }
  reply.due = false;
}

void open_channel(int fd)
{
  channel = fd;
  watched_events = EPOLLIN;
  watch_fd(fd, EPOLLIN, &channel_source);
  told_count = 0;
  reply.due = false;
  peer_gone = false;
  to_tell = 0;
}
