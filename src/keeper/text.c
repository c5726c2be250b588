/* Numbers and sentences without stdio, whose buffers would cost a resting keeper pages. */
#define _GNU_SOURCE
#include "keeper.h"

#include <string.h>
#include <unistd.h>

/* Decimal, without a terminating zero; at most 20 bytes. */
size_t format_number(char *to, uint64_t number)
{
  char digits[20];
  size_t n = 0;
  do {
    digits[n++] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  for (size_t i = 0; i < n; i++) {
    to[i] = digits[n - 1 - i];
  }
  return n;
}

/* Writes the parts and a newline to stderr in one piece where it fits, so that lines of two processes do not mix. */
void complain(const char *const *parts)
{
  char line[4096];
  size_t n = 0;
  for (; *parts != NULL; parts++) {
    size_t length = strlen(*parts);
    if (n + length >= sizeof line) {
      (void)!write(STDERR_FILENO, line, n);
      n = 0;
    }
    if (length >= sizeof line) {
      (void)!write(STDERR_FILENO, *parts, length);
    } else {
      memcpy(line + n, *parts, length);
      n += length;
    }
  }
  line[n++] = '\n';
  (void)!write(STDERR_FILENO, line, n);
}
