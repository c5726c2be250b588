/* What is held: entries with a name, a descriptor or a pump, and a record that is bytes to the keeper. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct entry *entries; /* in the order in which they came */
static struct entry **entries_end = &entries;
static uint32_t entry_count;
static uint64_t records_bytes;

struct entry *find_entry(const char *name, size_t length)
{
  for (struct entry *e = entries; e != NULL; e = e->next) {
    if (e->name_length == length && memcmp(e->name, name, length) == 0) {
      return e;
    }
  }
  return NULL;
}

/* An empty entry, at the end of the list; NULL when there are too many. `replaces`: another one of that name goes soon. */
struct entry *make_entry(const char *name, size_t length, bool replaces)
{
  if (entry_count >= MAX_ENTRIES + (uint32_t)replaces) {
    return NULL;
  }
  struct entry *e = calloc(1, sizeof *e + length);
  if (e == NULL) {
    return NULL;
  }
  memcpy(e->name, name, length);
  e->name_length = (uint16_t)length;
  e->fd = -1;
  e->source.kind = SOURCE_HELD;
  *entries_end = e;
  entries_end = &e->next;
  entry_count++;
  return e;
}

int set_record(struct entry *e, const char *bytes, size_t length)
{
  if (length > MAX_RECORD_BYTES || records_bytes - e->record_bytes + length > MAX_RECORDS_BYTES) {
    return ENOSPC;
  }
  char *record = NULL;
  if (length > 0) {
    record = malloc(length);
    if (record == NULL) {
      return ENOMEM;
    }
    memcpy(record, bytes, length);
  }
  free(e->record);
  records_bytes = records_bytes - e->record_bytes + length;
  e->record = record;
  e->record_bytes = (uint32_t)length;
  return 0;
}

void drop_entry(struct entry *e)
{
  struct entry **link = &entries;
  while (*link != e) {
    link = &(*link)->next;
  }
  *link = e->next;
  if (entries_end == &e->next) {
    entries_end = link;
  }
  entry_count--;
  if (e->pump != NULL) {
    free_pump(e);
  }
  if (e->wake && server_state == SERVER_ASLEEP) {
    unwatch_fd(e->fd);
  }
  close_fd(&e->fd);
  records_bytes -= e->record_bytes;
  free(e->record);
  free(e);
}

/* The state of its pump has changed. */
void mark_pump(struct entry *e)
{
  e->untold_pump = true;
  tell(TELL_ENTRIES);
}

/* For a new server. */
void mark_everything_untold(void)
{
  for (struct entry *e = entries; e != NULL; e = e->next) {
    e->untold_held = true;
  }
  for (struct gone *g = watched_exits; g != NULL; g = g->next) {
    g->told = false;
  }
  told_signals = 0;
  tell(TELL_SIGNALS | TELL_EXITS | TELL_ENTRIES | TELL_SYNC);
}

/* While the server sleeps, descriptors marked so are waited for. */
void wake_on_entries(bool on)
{
  for (struct entry *e = entries; e != NULL; e = e->next) {
    if (!e->wake) {
      continue;
    }
    if (on) {
      watch_fd(e->fd, EPOLLIN | EPOLLRDHUP, &e->source);
    } else {
      unwatch_fd(e->fd);
    }
  }
}
