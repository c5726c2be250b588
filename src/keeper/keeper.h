/* What the keeper's files know of each other. One thread, one event at a time, no stdio in the keeper itself: a resting
 * keeper shall touch a handful of pages. */
#ifndef HOLDFAST_KEEPER_H
#define HOLDFAST_KEEPER_H

#include "protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define MS 1000000ull
#define PARTIAL_AFTER (25 * MS)     /* an unfinished line is written as P after this silence */
#define TRIM_AFTER (10000 * MS)     /* buffers go back to the kernel after this silence */
#define START_LIMIT (30000 * MS)    /* a server that is not ready by then is killed */
#define QUICK_DEATH (1000 * MS)     /* a server that dies so soon after ready counts for the back-off */
#define BACKOFF_FIRST (40 * MS)
#ifndef BACKOFF_MAX                 /* tests kill more often than that */
#define BACKOFF_MAX (5000 * MS)
#endif
#define LEAVE_LIMIT (10000 * MS)    /* a server that said quit or failed and stays is killed */
#define GIVE_UP_AFTER (8000 * MS)   /* SIGTERM pending and no ready server */
#define ROTATE_RETRY (1000 * MS)    /* after a rotation failed */
#define RETRY_AFTER (10 * MS)       /* after the kernel had no memory for a message */
#define YOUNG_ORPHAN (30000 * MS)

enum {
  READ_BYTES = 65536,
  OUTPUT_BYTES = 131072,
  SLACK_BYTES = 4096,               /* vectors are read and written past the end of a buffer */
  UNLOGGED_READ_BYTES = 16384,
  MAX_PARKED_BYTES = 4 << 20,
  MAX_UNLOGGED_BYTES = 16 << 20,
  MAX_YOUNG_ORPHANS = 16384,
  MAX_OLD_ORPHANS = 4096,
  SPARE_FDS = 32,                   /* for restarting the server */
  MAX_LEAF_BYTES = 250,
};

/* What epoll points at: a member of everything that is waited for. */
enum source_kind { SOURCE_SIGNALS, SOURCE_CHANNEL, SOURCE_INPUT, SOURCE_COPY, SOURCE_HELD };
struct source {
  enum source_kind kind;
};

struct entry;

/* One output of a container. */
struct stream {
  struct source in_source;
  struct source copy_source;
  struct entry *entry;
  int in;                           /* -1: there is none, or it has ended */
  int copy;
  uint8_t number;                   /* 0 stdout (or the terminal), 1 stderr */
  bool terminal;
  bool ended;
  bool reading;                     /* `in` is in the epoll set */
  bool line_open;                   /* the last entry was a P */
  bool parked;                      /* the copy is full: `rest` waits for room, `copy` is in the epoll set */
  bool lost;
  uint32_t patience_ms;
  uint32_t carry_bytes;             /* the unfinished line */
  uint32_t rest_bytes;              /* read and not yet taken by the copy: [rest_offset, rest_bytes) */
  uint32_t rest_offset;
  char *carry;
  char *rest;
  uint64_t bytes;
  uint64_t copy_from;
  uint64_t lost_at;
  uint64_t carry_since;
  uint64_t stalled_since;
};

struct pump {
  struct stream stream[2];
  int log;                          /* -1: none */
  int directory;
  int error;                        /* errno of writing the log */
  int rotate_error;
  uint32_t generation;
  bool torn;                        /* the file ends in the middle of an entry that could not be cut off */
  bool discard;
  uint64_t size;
  uint64_t limit;
  uint64_t dropped;
  uint64_t rotate_after;
  char leaf[MAX_LEAF_BYTES + 1];
};

/* What is kept under a name. */
struct entry {
  struct source source;
  struct entry *next;
  struct pump *pump;
  char *record;
  uint32_t record_bytes;
  int fd;
  uint16_t name_length;
  bool wake;
  bool untold_held;                 /* the server is to be told all of it */
  bool untold_pump;                 /* ... or its pump's state only */
  char name[];
};

/* An exit status. */
struct gone {
  struct gone *next;
  uint64_t number;
  uint64_t when;                    /* ns since 1970 */
  uint64_t stored;                  /* monotonic */
  int pid;
  int status;
  bool told;
};

enum server_state { SERVER_DOWN, SERVER_STARTING, SERVER_UP, SERVER_ASLEEP };

/* What is still to be told, so that nobody searches for nothing. */
enum { TELL_REPLY = 1, TELL_SIGNALS = 2, TELL_EXITS = 4, TELL_ENTRIES = 8, TELL_SYNC = 16, TELL_ALL = 31 };

/* keeper.c: the loop */
uint64_t monotonic(void);
uint64_t realtime(void);
void wake_by(uint64_t when);
void watch_fd(int fd, uint32_t events, struct source *source);
void rewatch_fd(int fd, uint32_t events, struct source *source);
void unwatch_fd(int fd);
void close_fd(int *fd);
void touched_buffers(void);

/* launch.c: how a monitor comes to life and what it leaves behind */
int launch(int argc, char **argv);
bool report_ready(bool keep_stdout);
void report_failed(int code, const char *text, size_t length);
int set_paths(const char *bytes, size_t length);
void remove_paths(void);

/* exec_server.c: the server's process */
extern int fd_limit;
int prepare_server(int argc, char **argv);
void raise_file_limit(void);
void lower_oom_score(void);
_Noreturn void exec_server(int channel_fd, int words_fd);

/* server.c: one server after the other */
extern enum server_state server_state;
extern pid_t server_pid;
extern uint64_t pending_signals;
extern uint64_t told_signals;
extern uint64_t incarnation;
void start_server(void);
void server_is_ready(bool keep_stdout);
void server_has_failed(int code, const char *text, size_t length);
void server_will_sleep(uint64_t heard);
void server_will_quit(int code);
void server_died(int status);
void kill_server(void);
void want_server(void);
void signals_came(uint64_t mask);
void signals_done(uint64_t mask);
void server_timers(uint64_t now);
void cut_last_words(void);

/* store.c: entries */
extern struct entry *entries;
struct entry *find_entry(const char *name, size_t length);
struct entry *make_entry(const char *name, size_t length, bool replaces);
int set_record(struct entry *e, const char *bytes, size_t length);
void drop_entry(struct entry *e);
void mark_pump(struct entry *e);
void mark_everything_untold(void);
void wake_on_entries(bool on);

/* children.c: statuses */
extern struct gone *watched_exits;
void reap(void);
int watch_pid(uint64_t pid);
int claim(uint64_t number);
int kill_child(uint64_t pid, uint64_t signal);
void kill_watched(void);
void forget_orphans(uint64_t now);
bool untold_exits(void);

/* pump.c: streams */
struct opened {
  int out, err, log, directory;     /* -1: not there; what a pump takes becomes -1 */
};
int make_pump(struct entry *e, const struct header *h, const char *leaf, struct opened *fds);
void free_pump(struct entry *e);
void pump_input(struct stream *s);
int relog(struct entry *e, int *fd);
void finish_pumps(void);
void pump_timers(uint64_t now);
bool is_logged(const struct stream *s);
bool is_patient(const struct stream *s);
void update_reading(struct stream *s);
extern char input_buffer[];

/* copy.c: a stream's copy for the server */
int start_copy(struct entry *e, uint64_t number, uint64_t patience_ms, int *fd);
void copy_text(struct stream *s, const char *text, size_t length);
void copy_has_room(struct stream *s);
void end_copy(struct stream *s, bool lost);
void free_copy(struct stream *s);
void copy_timers(struct stream *s, uint64_t now);

/* cri_log.c: bytes to entries; log_file.c: the file */
void log_begin(int stream_number);
char *log_lines(struct entry *e, struct stream *s, char *begin, char *end);
void log_entry(struct entry *e, char tag, const char *text, size_t length);
void log_flush(struct entry *e);
extern char output_buffer[];
struct iovec;
int write_log(struct pump *p, struct iovec *v, int count, size_t left);
void rotate_log(struct entry *e, size_t needed);
int log_errno(const struct pump *p);

/* channel.c: what the server says */
bool channel_input(void);

/* tell.c: what it is told */
extern int channel;
extern uint64_t told_count;
void open_channel(int fd);
void close_channel(void);
bool reply_pending(void);
void answer(uint32_t tag, int error);
void tell(unsigned what);
void channel_output(void);

/* run_oci.c, podinit.c: the two other programs in this binary */
int run_oci_main(int argc, char **argv);
int podinit_main(int argc, char **argv);

/* text.c: sentences without stdio */
size_t format_number(char *to, uint64_t number);
void complain(const char *const *parts);
#define COMPLAIN(...) complain((const char *const[]){ __VA_ARGS__, NULL })

#endif
