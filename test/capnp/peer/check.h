// Checks for the peers: a failed one is printed, and the program then exits with 1.

#pragma once
#include <kj/string.h>
#include <stdio.h>

static int failures = 0;

#define CHECK(condition, ...)                                                                    \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      failures++;                                                                                \
      printf("line %d: not %s  %s\n", __LINE__, #condition, kj::str("", ##__VA_ARGS__).cStr());     \
    }                                                                                            \
  } while (0)
