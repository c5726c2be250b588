/* Opens a terminal, sends its master over the socket that is descriptor 3, and runs a command on the slave. For tests:
 * open-pty COMMAND ARGUMENT... */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static int send_fd(int fd)
{
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
  } control;
  struct iovec vector = { "m", 1 };
  struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
  memset(&control, 0, sizeof control);
  control.header.cmsg_level = SOL_SOCKET;
  control.header.cmsg_type = SCM_RIGHTS;
  control.header.cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
  return sendmsg(3, &message, 0) == 1;
}

int main(int argc, char **argv)
{
  char name[64];
  int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (argc < 2 || master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || ptsname_r(master, name, sizeof name) != 0) {
    return 1;
  }
  int slave = open(name, O_RDWR | O_NOCTTY);
  if (slave < 0 || !send_fd(master)) {
    return 1;
  }
  close(master);
  close(3);
  setsid();
  ioctl(slave, TIOCSCTTY, 0);
  for (int i = 0; i < 3; i++) {
    dup2(slave, i);
  }
  close(slave);
  execvp(argv[1], argv + 1);
  return 127;
}
