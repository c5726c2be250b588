/* libFuzzer target: the keeper's channel, pumps and copies in one process, driven by the input byte by byte: messages with
 * descriptors, writes to and reads from their other ends, turns of the loop, time. No server is ever started.
 * FUZZ_DIRECTORY is where its files `log` and `log.1` may be. test/faults/keeper-fuzz.test.ts builds and runs it. */
#define _GNU_SOURCE
#define main keeper_main
#include "../../../src/keeper/keeper.c"
#undef main

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { KEPT = 32 };

struct input {
  const uint8_t *at;
  size_t left;
};

static int kept[KEPT]; /* the other ends of what the keeper has got */
static int other_end = -1; /* of the channel */
static int directory = -1;

static uint8_t byte(struct input *in)
{
  if (in->left == 0) {
    return 0;
  }
  in->left--;
  return *in->at++;
}

static uint64_t number(struct input *in)
{
  uint8_t kind = byte(in);
  uint64_t value = 0;
  if (kind < 0xf0) {
    return kind;
  }
  for (int i = 0; i < 8; i++) {
    value = value << 8 | byte(in);
  }
  return value;
}

static void keep(int fd)
{
  static unsigned next;
  close_fd(&kept[next % KEPT]);
  kept[next++ % KEPT] = fd;
}

static int pair_end(bool sockets)
{
  int ends[2];
  if (sockets ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0
              : pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
    return -1;
  }
  int small = 4096; /* so that copies are full soon */
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  keep(ends[1]);
  return ends[0];
}

static int make_fd(uint8_t kind)
{
  switch (kind % 8) {
  case 0:
  case 1:
    return pair_end(false);
  case 2:
  case 3:
    return pair_end(true);
  case 4:
    return memfd_create("log", MFD_CLOEXEC);
  case 5:
    return dup(directory);
  case 6:
    return openat(directory, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  default:
    return open("/dev/null", O_RDWR | O_CLOEXEC);
  }
}

static void send_message(const struct iovec *parts, size_t count, const int *fds, unsigned fd_count)
{
  union {
    char bytes[CMSG_SPACE(sizeof(int) * 8)];
    struct cmsghdr header;
  } control = { 0 };
  struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count };
  if (fd_count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * fd_count);
  }
  (void)sendmsg(other_end, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void structured_message(struct input *in)
{
  static const char names[][4] = { "a", "b", "c", "" };
  static char payload[65536] = "log";
  static const uint16_t sizes[] = { 0, 3, 3, 3, 100, 5000, 32768, 40000 };
  int fds[8];
  unsigned fd_count = byte(in) % 9;
  struct header h = { .type = byte(in) % 18, .tag = 1 };
  h.flags = (uint16_t)(byte(in) | byte(in) << 8);
  const char *name = names[byte(in) % 4];
  h.name_length = (uint16_t)strlen(name);
  h.fd_count = (uint16_t)fd_count;
  h.c = (uint32_t)number(in);
  h.a = number(in);
  h.b = number(in);
  if (h.type == PUMP) {
    /* Mostly what fits: else hardly a pump would ever be made. */
    static const uint16_t bit[] = { FLAG_OUT, FLAG_ERR, FLAG_LOG, FLAG_DIRECTORY };
    static const uint8_t kind[] = { 0, 2, 6, 5 };
    h.fd_count = 0;
    h.c = 3;
    for (int i = 0; i < 4; i++) {
      if ((h.flags & bit[i]) != 0) {
        fds[h.fd_count++] = make_fd(kind[i]);
      }
    }
    fd_count = h.fd_count;
  } else {
    for (unsigned i = 0; i < fd_count; i++) {
      fds[i] = make_fd(byte(in));
    }
  }
  struct iovec parts[] = {
    { &h, sizeof h }, { (void *)(uintptr_t)name, h.name_length }, { payload, sizes[byte(in) % 8] },
  };
  if (h.type != READY) { /* would report to a launcher that is not there */
    send_message(parts, 3, fds, fd_count);
  }
  for (unsigned i = 0; i < fd_count; i++) {
    close_fd(&fds[i]);
  }
}

static void raw_message(struct input *in)
{
  size_t length = byte(in);
  struct iovec part = { (void *)(uintptr_t)in->at, length < in->left ? length : in->left };
  struct header h = { 0 };
  memcpy(&h, part.iov_base, part.iov_len < sizeof h ? part.iov_len : sizeof h);
  if (h.type != READY) {
    send_message(&part, 1, NULL, 0);
  }
  in->at += part.iov_len;
  in->left -= part.iov_len;
}

static void turn(void)
{
  struct epoll_event event;
  channel_output();
  if (epoll_wait(epoll, &event, 1, 0) == 1) {
    handle_event(event.data.ptr);
  }
}

static void act(struct input *in)
{
  static char text[65536];
  uint8_t op = byte(in);
  int *fd = &kept[byte(in) % KEPT];
  switch (op % 8) {
  case 0:
  case 1:
    structured_message(in);
    break;
  case 2:
    raw_message(in);
    break;
  case 3: {
    size_t length = (size_t)byte(in) * byte(in);
    memset(text, 'x', sizeof text);
    for (size_t i = byte(in); i < length; i += (size_t)byte(in) + 1) {
      text[i] = '\n';
    }
    if (*fd >= 0) {
      (void)!write(*fd, text, length);
    }
    break;
  }
  case 4:
    if (*fd >= 0) {
      (void)!read(*fd, text, sizeof text);
    }
    break;
  case 5:
    close_fd(fd);
    break;
  case 6:
    pump_timers(monotonic() + byte(in) * 10 * MS);
    break;
  default:
    (void)recv(other_end, text, sizeof text, MSG_DONTWAIT);
  }
  turn();
  turn();
}

static bool prepare(void)
{
  const char *path = getenv("FUZZ_DIRECTORY");
  directory = open(path == NULL ? "/dev/shm" : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; i < KEPT; i++) {
    kept[i] = -1;
  }
  fd_limit = 500;
  return directory >= 0 && take_over_signals();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static bool prepared;
  struct input in = { data, size };
  int ends[2];
  if (!prepared && !prepare()) {
    abort();
  }
  prepared = true;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
    abort();
  }
  server_state = SERVER_UP;
  other_end = ends[1];
  open_channel(ends[0]);
  mark_everything_untold();
  while (in.left > 0) {
    act(&in);
  }
  while (entries != NULL) {
    drop_entry(entries);
  }
  close_channel();
  close_fd(&other_end);
  for (int i = 0; i < KEPT; i++) {
    close_fd(&kept[i]);
  }
  (void)unlinkat(directory, "log", 0);
  (void)unlinkat(directory, "log.1", 0);
  return 0;
}
