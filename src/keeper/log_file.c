/* The log file: writing whole entries or nothing, and the limit of its size, which is kept by renaming and beginning anew. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int log_errno(const struct pump *p)
{
  return p->error != 0 ? p->error : p->rotate_error;
}

/* Bytes after the last newline in the first `length` bytes of these vectors; *cut: there was no newline at all. */
static size_t unfinished_tail(const struct iovec *v, size_t length, bool *cut)
{
  size_t tail = 0;
  *cut = true;
  for (; length > 0; v++) {
    size_t n = v->iov_len < length ? v->iov_len : length;
    const char *newline = memrchr(v->iov_base, '\n', n);
    if (newline != NULL) {
      tail = (size_t)((char *)v->iov_base + n - newline - 1);
      *cut = false;
    } else {
      tail += n;
    }
    length -= n;
  }
  return tail;
}

/* The file ends in `tail` bytes of an entry that will not be finished: cut them off, or begin anew on the next line. */
static void cut_entry(struct pump *p, size_t tail)
{
  struct stat st;
  if (tail == 0) {
    return;
  }
  if (fstat(p->log, &st) == 0 && (size_t)st.st_size >= tail && ftruncate(p->log, st.st_size - (off_t)tail) == 0) {
    p->size -= tail;
    p->dropped += tail;
  } else {
    p->torn = true;
  }
}

/* Writes whole entries, `left` bytes in all; uses the vectors up. Returns an errno or 0. */
int write_log(struct pump *p, struct iovec *v, int count, size_t left)
{
  size_t tail = 0;
  int error = 0;
  if (p->torn) {
    if (write(p->log, "\n", 1) != 1) {
      p->dropped += left;
      return errno;
    }
    p->torn = false;
    p->size++;
  }
  while (left > 0) {
    ssize_t r = count == 1 ? write(p->log, v->iov_base, v->iov_len) : writev(p->log, v, count);
    if (r < 0 && errno == EINTR) {
      continue;
    }
    if (r <= 0) {
      error = r < 0 ? errno : EIO;
      break;
    }
    p->size += (uint64_t)r;
    left -= (size_t)r;
    if (left == 0) {
      break;
    }
    bool cut;
    size_t unfinished = unfinished_tail(v, (size_t)r, &cut);
    tail = cut ? tail + unfinished : unfinished;
    while ((size_t)r >= v->iov_len) {
      r -= (ssize_t)v->iov_len;
      v++;
      count--;
    }
    v->iov_base = (char *)v->iov_base + r;
    v->iov_len -= (size_t)r;
  }
  if (error != 0) {
    cut_entry(p, tail);
    p->dropped += left;
  }
  return error;
}

static int open_fresh(const struct pump *p, mode_t mode)
{
  static const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = openat(p->directory, p->leaf, how, mode);
  struct stat st;
  if (fd < 0) {
    return -1;
  }
  if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    errno = EINVAL;
    return -1;
  }
  if (st.st_size == 0) {
    (void)fchmod(fd, mode); /* the umask must not change it */
  }
  return fd;
}

/* Renames the file only while the name is still its own: whoever rotates, too, may have been faster. */
static int rename_own(const struct pump *p, const struct stat *own)
{
  char to[MAX_LEAF_BYTES + 3];
  struct stat named;
  if (fstatat(p->directory, p->leaf, &named, AT_SYMLINK_NOFOLLOW) < 0) {
    return errno == ENOENT ? 0 : -1;
  }
  if (named.st_dev != own->st_dev || named.st_ino != own->st_ino) {
    return 0;
  }
  size_t length = strlen(p->leaf);
  memcpy(to, p->leaf, length);
  memcpy(to + length, ".1", 3);
  return renameat(p->directory, p->leaf, p->directory, to);
}

/* Before an entry of `needed` bytes that the file has no room for. */
void rotate_log(struct entry *e, size_t needed)
{
  struct pump *p = e->pump;
  struct stat st;
  uint64_t now = monotonic();
  if (now < p->rotate_after || fstat(p->log, &st) < 0) {
    return;
  }
  if ((uint64_t)st.st_size < p->size) {
    /* Somebody has truncated it. */
    p->size = (uint64_t)st.st_size;
    if (p->size + needed <= p->limit) {
      return;
    }
  }
  int fd = rename_own(p, &st) < 0 ? -1 : open_fresh(p, st.st_mode & 0777);
  if (fd < 0) {
    /* Better a log that is too long than one that is lost. Told once. */
    int error = errno;
    p->rotate_after = now + ROTATE_RETRY;
    if (error == p->rotate_error) {
      return;
    }
    p->rotate_error = error;
  } else {
    close(p->log);
    p->log = fd;
    p->size = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    p->rotate_error = 0;
    p->torn = false;
    p->generation++;
  }
  mark_pump(e);
}
