/* lines SIZE TOTAL: writes lines of SIZE bytes, newline included, until at least TOTAL bytes are out, as fast as it
 * can. It is what a container runs in the log benchmarks. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_BYTES = 65536 };

static int write_all(const char *buffer, size_t size)
{
  while (size > 0) {
    ssize_t written = write(STDOUT_FILENO, buffer, size);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return -1;
    buffer += written;
    size -= (size_t)written;
  }
  return 0;
}

int main(int argc, char **argv)
{
  if (argc != 3)
    return 2;
  size_t line = strtoul(argv[1], NULL, 10);
  unsigned long long total = strtoull(argv[2], NULL, 10);
  if (line == 0 || line > WRITE_BYTES)
    return 2;
  size_t size = WRITE_BYTES / line * line;
  char *buffer = malloc(size);
  if (buffer == NULL)
    return 1;
  memset(buffer, 'x', size);
  for (size_t end = line - 1; end < size; end += line)
    buffer[end] = '\n';
  for (unsigned long long done = 0; done < total; done += size) {
    if (write_all(buffer, size) < 0)
      return 1;
  }
  return 0;
}
