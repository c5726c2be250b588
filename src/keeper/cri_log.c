/* Container output to CRI log entries: `2026-11-30T06:37:21.022626000+00:00 stdout F text`. One scan, one write, one time
 * stamp per read. The file itself is log_file.c's. */
#define _GNU_SOURCE
#include "keeper.h"

#include <string.h>
#include <sys/uio.h>

enum {
  PREFIX_BYTES = 45,   /* up to and including the blank before the text */
  TAG_AT = 43,
  SMALL_BYTES = 1024,  /* text up to this is copied beside its prefix, longer text stays where it is */
  MAX_VECTORS = 64,
};

char output_buffer[OUTPUT_BYTES + SLACK_BYTES] __attribute__((aligned(4096)));
_Static_assert((OUTPUT_BYTES + SLACK_BYTES) % 4096 == 0, "giving the buffer back must not reach its neighbour");

static char prefix[64];

/* The entries of one read: [segment, out) of the output buffer is not in a vector yet. */
static struct {
  char *segment;
  char *out;
  int count;
  size_t pending; /* bytes in all */
  struct iovec vector[MAX_VECTORS];
} writer;

/* ---- time ---- */

static void put_date(char *to, int64_t seconds)
{
  /* Days since 0000-03-01 to a civil date: years begin in March, so that the leap day is the last. */
  int64_t days = seconds / 86400 + 719468;
  int64_t second = seconds % 86400;
  int64_t era = days / 146097;
  int64_t day_of_era = days - era * 146097;
  int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  int64_t shifted = (5 * day_of_year + 2) / 153;
  int64_t day = day_of_year - (153 * shifted + 2) / 5 + 1;
  int64_t month = shifted < 10 ? shifted + 3 : shifted - 9;
  int64_t year = year_of_era + era * 400 + (month <= 2);
  int64_t field[6] = { year, month, day, second / 3600, second / 60 % 60, second % 60 };
  static const char separator[] = "--T::.";
  for (int i = 0; i < 6; i++) {
    for (int64_t divisor = i == 0 ? 1000 : 10; divisor > 0; divisor /= 10) {
      *to++ = (char)('0' + field[i] / divisor % 10);
    }
    *to++ = separator[i];
  }
}

/* A clock that is set back by less than a minute must not make entries of a stream go back. */
static uint64_t steady_time(void)
{
  static uint64_t last;
  uint64_t now = realtime();
  if (now < last && last - now < 60000 * MS) {
    return last;
  }
  last = now;
  return now;
}

static void stamp(int stream_number)
{
  static uint64_t stamped = ~0ull;
  uint64_t now = steady_time();
  uint64_t seconds = now / 1000000000;
  if (seconds != stamped) {
    put_date(prefix, (int64_t)seconds);
    stamped = seconds;
  }
  uint64_t rest = now % 1000000000;
  for (int i = 28; i > 19; i--) {
    prefix[i] = (char)('0' + rest % 10);
    rest /= 10;
  }
  memcpy(prefix + 29, stream_number == 0 ? "+00:00 stdout F    " : "+00:00 stderr F    ", 19);
}

static void reset_writer(void)
{
  writer.segment = output_buffer;
  writer.out = output_buffer;
  writer.count = 0;
  writer.pending = 0;
}

static void end_segment(void)
{
  if (writer.out > writer.segment) {
    writer.vector[writer.count].iov_base = writer.segment;
    writer.vector[writer.count++].iov_len = (size_t)(writer.out - writer.segment);
  }
  writer.segment = writer.out;
}

void log_flush(struct entry *e)
{
  struct pump *p = e->pump;
  end_segment();
  if (writer.count > 0) {
    int error = write_log(p, writer.vector, writer.count, writer.pending);
    if (error != p->error) {
      /* Told when it changes, not at every write. */
      p->error = error;
      mark_pump(e);
    }
  }
  reset_writer();
}

/* ---- entries ---- */

void log_begin(int stream_number)
{
  stamp(stream_number);
  reset_writer();
}

/* Before an entry of `length` bytes of text: the limit, room in the buffer and in the vectors. */
static inline void make_room(struct entry *e, size_t length)
{
  struct pump *p = e->pump;
  if (__builtin_expect(p->limit != 0, 0)) {
    uint64_t size = p->size + writer.pending;
    if (size > 0 && size + PREFIX_BYTES + length + 1 > p->limit) {
      log_flush(e);
      rotate_log(e, PREFIX_BYTES + length + 1);
    }
  }
  size_t room = (size_t)(output_buffer + OUTPUT_BYTES - writer.out);
  if (__builtin_expect(room < PREFIX_BYTES + SMALL_BYTES + 64 || writer.count > MAX_VECTORS - 4, 0)) {
    log_flush(e);
  }
}

static inline void put_prefix(char tag)
{
  memcpy(writer.out, prefix, 48);
  writer.out[TAG_AT] = tag;
  writer.out += PREFIX_BYTES;
}

void log_entry(struct entry *e, char tag, const char *text, size_t length)
{
  make_room(e, length);
  put_prefix(tag);
  if (length <= SMALL_BYTES) {
    if (length > 0) {
      memcpy(writer.out, text, length);
    }
    writer.out += length;
  } else {
    end_segment();
    writer.vector[writer.count].iov_base = (void *)(uintptr_t)text;
    writer.vector[writer.count++].iov_len = length;
  }
  *writer.out++ = '\n';
  writer.pending += PREFIX_BYTES + length + 1;
}

/* ---- the scan ---- */

#if defined __SSE2__
#include <emmintrin.h>
typedef __m128i vector;
static inline unsigned newline_at(vector x)
{
  int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('\n')));
  return mask != 0 ? (unsigned)__builtin_ctz((unsigned)mask) : sizeof(vector);
}
#elif defined __aarch64__
#include <arm_neon.h>
typedef uint8x16_t vector;
static inline unsigned newline_at(vector x)
{
  uint8x8_t narrow = vshrn_n_u16(vreinterpretq_u16_u8(vceqq_u8(x, vdupq_n_u8('\n'))), 4);
  uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(narrow), 0);
  return mask != 0 ? (unsigned)__builtin_ctzll(mask) / 4 : sizeof(vector);
}
#else
typedef uint64_t vector;
static inline unsigned newline_at(vector x)
{
  x ^= 0x0a0a0a0a0a0a0a0aull;
  x = (x - 0x0101010101010101ull) & ~x & 0x8080808080808080ull;
  return x != 0 ? (unsigned)__builtin_ctzll(x) / 8 : sizeof(vector);
}
#endif

/* Copies the line at `text` behind a prefix while it looks for its newline. Returns where that is, or NULL when the line is
 * long or unfinished: then nothing was written. Reads and writes at most one vector too far. */
static inline char *copy_line(char *text, const char *end)
{
  put_prefix('F');
  char *out = writer.out;
  const char *limit = text + SMALL_BYTES;
  unsigned hit;
  do {
    vector x;
    memcpy(&x, text, sizeof x);
    memcpy(out, &x, sizeof x);
    hit = newline_at(x);
    text += hit;
    out += hit;
  } while (hit == sizeof(vector) && text < limit);
  if (hit == sizeof(vector) || text >= end) {
    writer.out -= PREFIX_BYTES;
    return NULL;
  }
  *out = '\n';
  writer.pending += (size_t)(out + 1 - writer.out) + PREFIX_BYTES;
  writer.out = out + 1;
  return text;
}

static inline bool copy_fits(const struct pump *p)
{
  return p->limit == 0 || p->size + writer.pending + PREFIX_BYTES + SMALL_BYTES + sizeof(vector) + 1 <= p->limit;
}

/* Writes the lines of [begin, end), also the beginning of one that is too long. Returns where the unfinished rest begins,
 * at most MAX_LINE_BYTES before the end. end[0] must be writable. */
char *log_lines(struct entry *e, struct stream *s, char *begin, char *end)
{
  *end = '\n'; /* every search ends here */
  while (begin < end) {
    if (copy_fits(e->pump)) {
      make_room(e, SMALL_BYTES);
      char *newline = copy_line(begin, end);
      if (newline != NULL) {
        begin = newline + 1;
        s->line_open = false;
        continue;
      }
    }
    char *newline = memchr(begin, '\n', (size_t)(end - begin) + 1);
    while (newline - begin > MAX_LINE_BYTES) {
      log_entry(e, 'P', begin, MAX_LINE_BYTES);
      begin += MAX_LINE_BYTES;
      s->line_open = true;
    }
    if (newline == end) {
      break;
    }
    log_entry(e, 'F', begin, (size_t)(newline - begin));
    begin = newline + 1;
    s->line_open = false;
  }
  return begin;
}
