/* The numbers of the channel between keeper and server, and the limits that both must know. PROTOCOL.md draws it;
 * channel-messages.ts has the same numbers (test/keeper/protocol.test.ts compares them: keep `NAME = number,` lines). */
#ifndef HOLDFAST_PROTOCOL_H
#define HOLDFAST_PROTOCOL_H

#include <stdint.h>

enum {
  PROTOCOL_VERSION = 1,
  CHANNEL_FD = 3,
};

/* Every message: this, then `name_length` bytes of name, then the payload. Little-endian. */
struct header {
  uint16_t type;
  uint16_t flags;
  uint16_t name_length;
  uint16_t fd_count;
  uint32_t tag;
  uint32_t c;
  uint64_t a;
  uint64_t b;
};
_Static_assert(sizeof(struct header) == 32, "the header is 32 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the channel is little-endian");

/* Server to keeper. 16-31 are free, 32-47 are reserved for the hand-over channel. */
enum {
  HOLD = 1,
  RECORD = 2,
  DROP = 3,
  PUMP = 4,
  RELOG = 5,
  COPY = 6,
  WATCH = 7,
  CLAIMED = 8,
  READY = 9,
  FAILED = 10,
  SLEEP = 11,
  QUIT = 12,
  KILL = 13,
  SIGACK = 14,
  REPLACE = 15,
};

/* Keeper to server. 70-79 are free, 96-111 are reserved for the hand-over channel. */
enum {
  HELD = 64,
  EXITED = 65,
  SYNC = 66,
  PUMPED = 67,
  SIGNALLED = 68,
  DONE = 69,
};

enum {
  FLAG_ACK = 0x1,
  FLAG_WAKE = 0x2,
  FLAG_PUMP = 0x4,
  FLAG_OUT = 0x8,
  FLAG_ERR = 0x10,
  FLAG_LOG = 0x20,
  FLAG_DIRECTORY = 0x40,
  FLAG_TERMINAL = 0x80,
  FLAG_OUT_ENDED = 0x100,
  FLAG_ERR_ENDED = 0x200,
  FLAG_OUT_LOST = 0x400,
  FLAG_ERR_LOST = 0x800,
  FLAG_OUT_COPYING = 0x1000,
  FLAG_ERR_COPYING = 0x2000,
  FLAG_DISCARD = 0x4000,
  FLAG_KEEP_STDOUT = 0x8000,
};

/* A pump's state: this many 64-bit numbers in front of the record (`held`) or alone (`pumped`). */
enum {
  STATE_BYTES = 0,
  STATE_COPY_FROM = 2,
  STATE_LOST_AT = 4,
  STATE_DROPPED = 6,
  STATE_INODE = 7,
  STATE_DEVICE = 8,
  STATE_WORDS = 9,
};

/* What a wrong server can make the keeper spend. */
enum {
  MAX_NAME_BYTES = 200,
  MAX_RECORD_BYTES = 32768,
  MAX_ENTRIES = 4096,
  MAX_RECORDS_BYTES = 8388608,
  MAX_WATCHED = 8192,
  MAX_MESSAGE_FDS = 5,
  MAX_PATHS_BYTES = 16384,
  MAX_FAILED_BYTES = 32768,
  MAX_PATIENCE_MS = 1000,
  MAX_LINE_BYTES = 16384,
  MAX_LAST_WORDS_BYTES = 65536,
};

#endif
