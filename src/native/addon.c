/*
 * Node-API addon: the kernel calls that Node does not offer. Plain C, one function per call, no state but live polls.
 * The types and the meaning of each function are in addon.ts; nothing else may load this file.
 * Wrong arguments throw a TypeError; a failed call throws an Error with `code`, `errno` (negative, as Node's own) and
 * `syscall`. Descriptors are made CLOEXEC, and none is left open on an error path.
 */
#define _GNU_SOURCE
#define NAPI_VERSION 8
#include <node_api.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/*
 * The part of libuv that is used. node-api-headers carries no uv.h, and a bare Node has no headers at all. libuv keeps
 * its binary interface within version 1, so the prototypes are declared here; sizes are asked for at run time, and
 * poll() checks that type 8 still means a poll handle.
 */
typedef struct uv_loop_s uv_loop_t;
typedef struct uv_handle_s uv_handle_t;
typedef struct uv_poll_s uv_poll_t;
#define UV_POLL 8
#define UV_READABLE 1
#define UV_WRITABLE 2
#define UV_PRIORITIZED 8
size_t uv_handle_size(int type);
int uv_handle_get_type(const uv_handle_t *handle);
void *uv_handle_get_data(const uv_handle_t *handle);
void uv_handle_set_data(uv_handle_t *handle, void *data);
int uv_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd);
int uv_poll_start(uv_poll_t *poll, int events, void (*callback)(uv_poll_t *poll, int status, int events));
int uv_poll_stop(uv_poll_t *poll);
void uv_close(uv_handle_t *handle, void (*callback)(uv_handle_t *handle));
const char *uv_err_name(int error);

/* SCM_MAX_FD of the kernel. */
#define MAX_FDS 253
/* A message of the keeper channel is at most 64 KiB; stream sockets are read in pieces of this size. */
#define RECEIVE_BYTES (128 * 1024)
#define MAX_BUFFERS 64
#define NSFS_MAGIC 0x6e736673
#define COPY_SEND_BUFFER (1024 * 1024)
#define DATAGRAM_SEND_BUFFER (8 * 1024 * 1024)

/* Node itself guards these two the same way: they fail only when the engine is out of memory. */
#define CHECK(call)                                                        \
  do {                                                                     \
    if ((call) != napi_ok)                                                 \
      napi_fatal_error(__func__, NAPI_AUTO_LENGTH, #call, NAPI_AUTO_LENGTH); \
  } while (0)

/* ---- one per environment ---- */

struct poller;

struct instance {
  struct poller *live;
  uint8_t *receive;
  /* At the end of the environment: polls whose handle libuv has not closed yet, and the hook to report to. */
  unsigned closing;
  napi_async_cleanup_hook_handle hook;
};

/* ---- errors and results ---- */

static napi_value fail_on(napi_env env, int error, const char *call, const char *object) {
  char text[512];
  napi_value message, code, result, value;
  if (object != NULL)
    snprintf(text, sizeof text, "%s %.300s: %s", call, object, strerror(error));
  else
    snprintf(text, sizeof text, "%s: %s", call, strerror(error));
  CHECK(napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &message));
  CHECK(napi_create_string_utf8(env, uv_err_name(-error), NAPI_AUTO_LENGTH, &code));
  CHECK(napi_create_error(env, code, message, &result));
  CHECK(napi_create_int32(env, -error, &value));
  napi_set_named_property(env, result, "errno", value);
  CHECK(napi_create_string_utf8(env, call, NAPI_AUTO_LENGTH, &value));
  napi_set_named_property(env, result, "syscall", value);
  napi_throw(env, result);
  return NULL;
}

static napi_value fail(napi_env env, int error, const char *call) {
  return fail_on(env, error, call, NULL);
}

static bool wrong_type(napi_env env, const char *expected) {
  char text[128];
  snprintf(text, sizeof text, "argument must be %s", expected);
  napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", text);
  return false;
}

static napi_value number(napi_env env, double value) {
  napi_value result;
  CHECK(napi_create_double(env, value, &result));
  return result;
}

static napi_value boolean(napi_env env, bool value) {
  napi_value result;
  CHECK(napi_get_boolean(env, value, &result));
  return result;
}

static napi_value null(napi_env env) {
  napi_value result;
  CHECK(napi_get_null(env, &result));
  return result;
}

static napi_value undefined(napi_env env) {
  napi_value result;
  CHECK(napi_get_undefined(env, &result));
  return result;
}

static napi_value fd_or_fail(napi_env env, int fd, const char *call) {
  return fd < 0 ? fail(env, errno, call) : number(env, fd);
}

static napi_value pair(napi_env env, const int fds[2]) {
  napi_value result;
  CHECK(napi_create_array_with_length(env, 2, &result));
  napi_set_element(env, result, 0, number(env, fds[0]));
  napi_set_element(env, result, 1, number(env, fds[1]));
  return result;
}

/* ---- arguments: each getter throws and returns false when the value is not what is wanted ---- */

/* Missing arguments come as undefined, so the getters find them. */
static void arguments(napi_env env, napi_callback_info info, size_t count, napi_value *values) {
  size_t room = count;
  CHECK(napi_get_cb_info(env, info, &room, values, NULL, NULL));
}

static bool get_integer(napi_env env, napi_value value, double least, double most, int *result) {
  double n;
  if (napi_get_value_double(env, value, &n) != napi_ok)
    return wrong_type(env, "a number");
  if (!(n >= least && n <= most) || n != (double)(int)n) {
    char text[96];
    snprintf(text, sizeof text, "number must be an integer from %.0f to %.0f", least, most);
    napi_throw_range_error(env, "ERR_OUT_OF_RANGE", text);
    return false;
  }
  *result = (int)n;
  return true;
}

static bool get_fd(napi_env env, napi_value value, int *fd) {
  return get_integer(env, value, 0, INT_MAX, fd);
}

static bool is_undefined(napi_env env, napi_value value) {
  napi_valuetype type;
  CHECK(napi_typeof(env, value, &type));
  return type == napi_undefined;
}

/* The caller frees the string. One with a NUL inside would name another file than it says. */
static char *get_string(napi_env env, napi_value value) {
  size_t length = 0;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) {
    wrong_type(env, "a string");
    return NULL;
  }
  char *text = malloc(length + 1);
  if (text == NULL) {
    fail(env, ENOMEM, "malloc");
    return NULL;
  }
  CHECK(napi_get_value_string_utf8(env, value, text, length + 1, &length));
  if (strlen(text) != length || length == 0) {
    free(text);
    wrong_type(env, "a string without NUL, not empty");
    return NULL;
  }
  return text;
}

static bool get_bytes(napi_env env, napi_value value, struct iovec *bytes) {
  bool is_typed_array = false;
  napi_typedarray_type type;
  CHECK(napi_is_typedarray(env, value, &is_typed_array));
  if (!is_typed_array)
    return wrong_type(env, "a Uint8Array");
  CHECK(napi_get_typedarray_info(env, value, &type, &bytes->iov_len, &bytes->iov_base, NULL, NULL));
  if (type != napi_uint8_array)
    return wrong_type(env, "a Uint8Array");
  return true;
}

static bool get_array(napi_env env, napi_value value, uint32_t most, uint32_t *length) {
  bool is_array = false;
  CHECK(napi_is_array(env, value, &is_array));
  if (!is_array)
    return wrong_type(env, "an array");
  CHECK(napi_get_array_length(env, value, length));
  if (*length > most) {
    char text[64];
    snprintf(text, sizeof text, "array must have at most %u elements", most);
    napi_throw_range_error(env, "ERR_OUT_OF_RANGE", text);
    return false;
  }
  return true;
}

/* An element's getter may run JavaScript and throw; then its exception stays pending. */
static bool get_element(napi_env env, napi_value array, uint32_t index, napi_value *value) {
  return napi_get_element(env, array, index, value) == napi_ok;
}

/*
 * All elements are fetched before the first pointer is taken: a getter could detach a buffer that was looked at.
 */
static bool get_buffers(napi_env env, napi_value value, struct iovec *buffers, uint32_t *count) {
  napi_value elements[MAX_BUFFERS];
  if (!get_array(env, value, MAX_BUFFERS, count))
    return false;
  for (uint32_t i = 0; i < *count; i++) {
    if (!get_element(env, value, i, &elements[i]))
      return false;
  }
  for (uint32_t i = 0; i < *count; i++) {
    if (!get_bytes(env, elements[i], &buffers[i]))
      return false;
  }
  return true;
}

static bool get_fds(napi_env env, napi_value value, int *fds, uint32_t *count) {
  if (!get_array(env, value, MAX_FDS, count))
    return false;
  for (uint32_t i = 0; i < *count; i++) {
    napi_value element;
    if (!get_element(env, value, i, &element) || !get_fd(env, element, &fds[i]))
      return false;
  }
  return true;
}

/* ---- messages with descriptors ---- */

union control {
  char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
  struct cmsghdr align;
};

static void attach_fds(struct msghdr *message, union control *control, const int *fds, size_t count) {
  if (count == 0)
    return;
  memset(control, 0, sizeof *control);
  message->msg_control = control->bytes;
  message->msg_controllen = CMSG_SPACE(sizeof(int) * count);
  struct cmsghdr *header = CMSG_FIRSTHDR(message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
}

static size_t received_fds(struct msghdr *message, int *fds) {
  size_t count = 0;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      continue;
    size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds + count, CMSG_DATA(header), here * sizeof(int));
    count += here;
  }
  return count;
}

static void close_fds(const int *fds, size_t count) {
  for (size_t i = 0; i < count; i++)
    close(fds[i]);
}

static napi_value message_object(napi_env env, const void *data, size_t length, const int *fds, size_t count) {
  napi_value object, buffer, array;
  if (napi_create_object(env, &object) != napi_ok || napi_create_array_with_length(env, count, &array) != napi_ok ||
      napi_create_buffer_copy(env, length, data, NULL, &buffer) != napi_ok)
    return NULL;
  for (uint32_t i = 0; i < count; i++) {
    if (napi_set_element(env, array, i, number(env, fds[i])) != napi_ok)
      return NULL;
  }
  if (napi_set_named_property(env, object, "data", buffer) != napi_ok ||
      napi_set_named_property(env, object, "fds", array) != napi_ok)
    return NULL;
  return object;
}

static uint8_t *receive_buffer(napi_env env) {
  struct instance *instance;
  CHECK(napi_get_instance_data(env, (void **)&instance));
  if (instance->receive == NULL)
    instance->receive = malloc(RECEIVE_BYTES);
  return instance->receive;
}

static napi_value recv_fds(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  union control control;
  struct iovec data = {receive_buffer(env), RECEIVE_BYTES};
  if (data.iov_base == NULL)
    return fail(env, ENOMEM, "recvmsg");
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  ssize_t length;
  do
    length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (length < 0 && errno == EINTR);
  if (length < 0)
    return errno == EAGAIN ? null(env) : fail(env, errno, "recvmsg");
  int fds[MAX_FDS];
  size_t count = received_fds(&message, fds);
  /* What did not fit is gone. Also the sign that this process has no room for the descriptors (EMFILE). */
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    close_fds(fds, count);
    return fail(env, EMSGSIZE, "recvmsg");
  }
  napi_value result = message_object(env, data.iov_base, (size_t)length, fds, count);
  if (result == NULL)
    close_fds(fds, count);
  return result;
}

static napi_value send_fds(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int fd;
  int fds[MAX_FDS];
  uint32_t count;
  struct iovec data;
  union control control;
  arguments(env, info, 3, argv);
  if (!get_fd(env, argv[0], &fd) || !get_fds(env, argv[2], fds, &count) || !get_bytes(env, argv[1], &data))
    return NULL;
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  attach_fds(&message, &control, fds, count);
  ssize_t sent;
  do
    sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN)
    return fail(env, errno, "sendmsg");
  return number(env, (double)sent);
}

/* ---- unix sockets ---- */

struct address {
  struct sockaddr_un name;
  /* A directory or socket that stands in for a path which does not fit into sun_path; -1: it fits. */
  int via;
};

/* The directory of a long path is opened and named by its descriptor. Returns 0 or an errno. */
static int address_to_bind(const char *path, struct address *address) {
  memset(address, 0, sizeof *address);
  address->name.sun_family = AF_UNIX;
  address->via = -1;
  if (strlen(path) < sizeof address->name.sun_path) {
    strcpy(address->name.sun_path, path);
    return 0;
  }
  const char *slash = strrchr(path, '/');
  if (slash == NULL)
    return ENAMETOOLONG;
  char *directory = strndup(path, (size_t)(slash - path) + 1);
  if (directory == NULL)
    return ENOMEM;
  address->via = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int error = errno;
  free(directory);
  if (address->via < 0)
    return error;
  int length = snprintf(address->name.sun_path, sizeof address->name.sun_path, "/proc/self/fd/%d/%s", address->via,
                        slash + 1);
  return length < (int)sizeof address->name.sun_path ? 0 : ENAMETOOLONG;
}

/* An existing socket can be opened itself, so here the last part may be long as well. */
static int address_to_connect(const char *path, struct address *address) {
  if (strlen(path) < sizeof address->name.sun_path)
    return address_to_bind(path, address);
  memset(address, 0, sizeof *address);
  address->name.sun_family = AF_UNIX;
  address->via = open(path, O_PATH | O_CLOEXEC);
  if (address->via < 0)
    return errno;
  snprintf(address->name.sun_path, sizeof address->name.sun_path, "/proc/self/fd/%d", address->via);
  return 0;
}

static void close_address(const struct address *address) {
  if (address->via >= 0)
    close(address->via);
}

static bool get_socket_type(napi_env env, napi_value value, int *type) {
  char name[12] = "";
  size_t length;
  *type = SOCK_STREAM;
  if (is_undefined(env, value))
    return true;
  if (napi_get_value_string_utf8(env, value, name, sizeof name, &length) != napi_ok)
    return wrong_type(env, "'stream' or 'seqpacket'");
  if (strcmp(name, "seqpacket") == 0)
    *type = SOCK_SEQPACKET;
  else if (strcmp(name, "stream") != 0)
    return wrong_type(env, "'stream' or 'seqpacket'");
  return true;
}

static int bind_and_listen(int fd, const struct sockaddr *name) {
  if (bind(fd, name, sizeof(struct sockaddr_un)) < 0)
    return errno;
  return listen(fd, SOMAXCONN) < 0 ? errno : 0;
}

static int connect_to(int fd, const struct sockaddr *name) {
  int result;
  do
    result = connect(fd, name, sizeof(struct sockaddr_un));
  while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

struct unix_call {
  const char *name;
  int (*make_address)(const char *path, struct address *address);
  int (*use)(int fd, const struct sockaddr *name);
};

static napi_value unix_socket(napi_env env, napi_callback_info info, const struct unix_call *call) {
  napi_value argv[2];
  int type;
  struct address address;
  arguments(env, info, 2, argv);
  if (!get_socket_type(env, argv[1], &type))
    return NULL;
  char *path = get_string(env, argv[0]);
  if (path == NULL)
    return NULL;
  int fd = -1;
  int error = call->make_address(path, &address);
  if (error == 0) {
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = fd < 0 ? errno : call->use(fd, (const struct sockaddr *)&address.name);
  }
  close_address(&address);
  if (error != 0) {
    if (fd >= 0)
      close(fd);
    fail_on(env, error, call->name, path);
  }
  free(path);
  return error != 0 ? NULL : number(env, fd);
}

static napi_value unix_listen(napi_env env, napi_callback_info info) {
  static const struct unix_call call = {"listen", address_to_bind, bind_and_listen};
  return unix_socket(env, info, &call);
}

static napi_value unix_connect(napi_env env, napi_callback_info info) {
  static const struct unix_call call = {"connect", address_to_connect, connect_to};
  return unix_socket(env, info, &call);
}

static napi_value accept_fd(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd, accepted;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  do
    accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  while (accepted < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (accepted < 0 && errno == EAGAIN)
    return null(env);
  return fd_or_fail(env, accepted, "accept4");
}

/* Both directions, for every holder of the socket; a peer that is gone already is no failure. */
static napi_value shut_down(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  if (shutdown(fd, SHUT_RDWR) < 0 && errno != ENOTCONN)
    return fail(env, errno, "shutdown");
  return undefined(env);
}

/* The privileged form ignores net.core.wmem_max; without the privilege the kernel gives what it may. */
static void set_send_buffer(int fd, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static int send_datagram(const char *path, struct msghdr *message, ssize_t *sent) {
  struct address address;
  int error = address_to_connect(path, &address);
  int fd = error == 0 ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
  if (error == 0 && fd < 0)
    error = errno;
  if (error == 0) {
    set_send_buffer(fd, DATAGRAM_SEND_BUFFER);
    message->msg_name = &address.name;
    message->msg_namelen = sizeof address.name;
    do
      *sent = sendmsg(fd, message, MSG_NOSIGNAL);
    while (*sent < 0 && errno == EINTR);
    if (*sent < 0 && errno != EAGAIN)
      error = errno;
  }
  if (fd >= 0)
    close(fd);
  close_address(&address);
  return error;
}

static napi_value unix_datagram_send(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  struct iovec buffers[MAX_BUFFERS];
  uint32_t count;
  int attached = -1;
  ssize_t sent = -1;
  union control control;
  arguments(env, info, 3, argv);
  if (!is_undefined(env, argv[2]) && !get_fd(env, argv[2], &attached))
    return NULL;
  if (!get_buffers(env, argv[1], buffers, &count))
    return NULL;
  char *path = get_string(env, argv[0]);
  if (path == NULL)
    return NULL;
  struct msghdr message = {.msg_iov = buffers, .msg_iovlen = count};
  attach_fds(&message, &control, &attached, attached < 0 ? 0 : 1);
  int error = send_datagram(path, &message, &sent);
  if (error != 0)
    fail_on(env, error, "sendmsg", path);
  free(path);
  return error != 0 ? NULL : number(env, (double)sent);
}

/* ---- descriptors ---- */

static int write_all(int fd, const struct iovec *bytes) {
  size_t done = 0;
  while (done < bytes->iov_len) {
    ssize_t n = write(fd, (const char *)bytes->iov_base + done, bytes->iov_len - done);
    if (n < 0 && errno != EINTR)
      return errno;
    if (n > 0)
      done += (size_t)n;
  }
  return 0;
}

static napi_value sealed_memfd(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  struct iovec buffers[MAX_BUFFERS];
  uint32_t count;
  arguments(env, info, 1, argv);
  if (!get_buffers(env, argv[0], buffers, &count))
    return NULL;
  int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    return fail(env, errno, "memfd_create");
  int error = 0;
  for (uint32_t i = 0; i < count && error == 0; i++)
    error = write_all(fd, &buffers[i]);
  if (error == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
    error = errno;
  if (error != 0) {
    close(fd);
    return fail(env, error, "memfd");
  }
  return number(env, fd);
}

static napi_value plain_memfd(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  arguments(env, info, 1, argv);
  char *name = get_string(env, argv[0]);
  if (name == NULL)
    return NULL;
  int fd = memfd_create(name, MFD_CLOEXEC);
  int error = errno;
  free(name);
  return fd < 0 ? fail(env, error, "memfd_create") : number(env, fd);
}

static napi_value make_pipe(napi_env env, napi_callback_info info) {
  int fds[2];
  (void)info;
  return pipe2(fds, O_CLOEXEC) < 0 ? fail(env, errno, "pipe2") : pair(env, fds);
}

static napi_value make_socketpair(napi_env env, napi_callback_info info) {
  int fds[2];
  (void)info;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
    return fail(env, errno, "socketpair");
  set_send_buffer(fds[0], COPY_SEND_BUFFER);
  set_send_buffer(fds[1], COPY_SEND_BUFFER);
  return pair(env, fds);
}

static napi_value lock_file(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0)
    return boolean(env, true);
  return errno == EWOULDBLOCK ? boolean(env, false) : fail(env, errno, "flock");
}

static napi_value set_nonblock(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return fail(env, errno, "fcntl");
  return undefined(env);
}

/* No exception on the way of normal data: -1 would block, 0 end of file or hang-up (a terminal says EIO). */
static napi_value read_fd(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int fd;
  struct iovec bytes;
  ssize_t n;
  arguments(env, info, 2, argv);
  if (!get_fd(env, argv[0], &fd) || !get_bytes(env, argv[1], &bytes))
    return NULL;
  do
    n = read(fd, bytes.iov_base, bytes.iov_len);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EIO)
    n = 0;
  if (n < 0 && errno != EAGAIN)
    return fail(env, errno, "read");
  return number(env, (double)n);
}

static napi_value write_fd(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int fd;
  int offset = 0;
  struct iovec bytes;
  ssize_t n;
  arguments(env, info, 3, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  if (!is_undefined(env, argv[2]) && !get_integer(env, argv[2], 0, INT_MAX, &offset))
    return NULL;
  if (!get_bytes(env, argv[1], &bytes))
    return NULL;
  if ((size_t)offset > bytes.iov_len) {
    napi_throw_range_error(env, "ERR_OUT_OF_RANGE", "offset is behind the end of the bytes");
    return NULL;
  }
  do
    n = write(fd, (const char *)bytes.iov_base + offset, bytes.iov_len - (size_t)offset);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno != EAGAIN)
    return fail(env, errno, "write");
  return number(env, (double)n);
}

static napi_value set_winsize(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  int fd, rows, columns;
  arguments(env, info, 3, argv);
  if (!get_fd(env, argv[0], &fd) || !get_integer(env, argv[1], 0, USHRT_MAX, &rows) ||
      !get_integer(env, argv[2], 0, USHRT_MAX, &columns))
    return NULL;
  struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
  return ioctl(fd, TIOCSWINSZ, &size) < 0 ? fail(env, errno, "TIOCSWINSZ") : undefined(env);
}

static napi_value bytes_readable(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  int count = 0;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  return ioctl(fd, FIONREAD, &count) < 0 ? fail(env, errno, "FIONREAD") : number(env, count);
}

static napi_value is_hung_up(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  struct pollfd state = {.fd = fd};
  int ready;
  do
    ready = poll(&state, 1, 0);
  while (ready < 0 && errno == EINTR);
  if (ready < 0)
    return fail(env, errno, "poll");
  if ((state.revents & POLLNVAL) != 0)
    return fail(env, EBADF, "poll");
  return boolean(env, (state.revents & (POLLHUP | POLLERR)) != 0);
}

static napi_value dup_cloexec(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  return fd_or_fail(env, fcntl(fd, F_DUPFD_CLOEXEC, 3), "dup");
}

static napi_value is_nsfs(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int fd;
  struct statfs about;
  arguments(env, info, 1, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  if (fstatfs(fd, &about) < 0)
    return fail(env, errno, "fstatfs");
  return boolean(env, (unsigned long)about.f_type == NSFS_MAGIC);
}

static napi_value make_eventfd(napi_env env, napi_callback_info info) {
  (void)info;
  return fd_or_fail(env, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd");
}

static napi_value pidfd_open_(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  int pid;
  arguments(env, info, 1, argv);
  if (!get_integer(env, argv[0], 1, INT_MAX, &pid))
    return NULL;
  return fd_or_fail(env, (int)syscall(SYS_pidfd_open, pid, 0), "pidfd_open");
}

static napi_value pidfd_signal(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int fd, number_of_signal;
  arguments(env, info, 2, argv);
  if (!get_fd(env, argv[0], &fd) || !get_integer(env, argv[1], 0, SIGRTMAX, &number_of_signal))
    return NULL;
  if (syscall(SYS_pidfd_send_signal, fd, number_of_signal, NULL, 0) < 0)
    return fail(env, errno, "pidfd_send_signal");
  return undefined(env);
}

/* ---- a socket inside a network namespace ---- */

struct netns_job {
  const char *path;
  int family;
  int fd;
  int error;
};

/* Runs on a thread of its own: if the way back failed, the event loop would be stranded in the pod's namespace. */
static void *netns_thread(void *argument) {
  struct netns_job *job = argument;
  int namespace = open(job->path, O_RDONLY | O_CLOEXEC);
  if (namespace < 0) {
    job->error = errno;
    return NULL;
  }
  if (setns(namespace, CLONE_NEWNET) == 0)
    job->fd = socket(job->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (job->fd < 0)
    job->error = errno;
  close(namespace);
  return NULL;
}

/* All signals are blocked, so that none of the process's is handled on the thread. Returns 0 or an errno. */
static int run_on_thread(void *(*run)(void *), void *argument) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, &attributes, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (error == 0)
    pthread_join(thread, NULL);
  return error;
}

static napi_value netns_socket(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  int family;
  arguments(env, info, 2, argv);
  if (!get_integer(env, argv[1], 4, 6, &family))
    return NULL;
  if (family == 5)
    return fail(env, EAFNOSUPPORT, "socket");
  char *path = get_string(env, argv[0]);
  if (path == NULL)
    return NULL;
  struct netns_job job = {path, family == 6 ? AF_INET6 : AF_INET, -1, 0};
  int error = run_on_thread(netns_thread, &job);
  if (error == 0)
    error = job.error;
  if (error != 0)
    fail_on(env, error, "setns", path);
  free(path);
  return error != 0 ? NULL : number(env, job.fd);
}

/* ---- memory ---- */

static napi_value malloc_trim_(napi_env env, napi_callback_info info) {
  (void)info;
#ifdef __GLIBC__
  return number(env, malloc_trim(0));
#else
  return number(env, 0);
#endif
}

/*
 * Read-only segments are unmodified pages of a file: given back, they come again from the page cache. (Node's
 * --use-largepages would replace them by anonymous memory; the keeper starts the server without it.)
 */
static int drop_object(struct dl_phdr_info *object, size_t size, void *total) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) != 0)
      continue;
    uintptr_t start = (object->dlpi_addr + segment->p_vaddr) & ~(page - 1);
    uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz + page - 1) & ~(page - 1);
    if (madvise((void *)start, end - start, MADV_DONTNEED) == 0)
      *(double *)total += (double)(end - start);
  }
  return 0;
}

static napi_value drop_text(napi_env env, napi_callback_info info) {
  double total = 0;
  (void)info;
  dl_iterate_phdr(drop_object, &total);
  return number(env, total);
}

/* ---- polls ---- */

/*
 * Our events: 1 readable, 2 writable, 4 hang-up only. libuv has no name for the last: waiting for urgent data, which
 * none of our descriptors has, leaves just what the kernel reports unasked, and libuv then reports the wanted event.
 */
#define HANG_UP 4

static int to_uv_events(int events) {
  return (events & (UV_READABLE | UV_WRITABLE)) | ((events & HANG_UP) != 0 ? UV_PRIORITIZED : 0);
}

static int from_uv_events(int events) {
  return (events & (UV_READABLE | UV_WRITABLE)) | ((events & UV_PRIORITIZED) != 0 ? HANG_UP : 0);
}

/*
 * Freed when both have let go: libuv, after the close callback, and JavaScript, when the handle object is collected.
 * So a second unpoll finds `open` false instead of freed memory.
 */
struct poller {
  struct poller *next;
  struct poller **link;
  struct instance *instance;
  napi_env env;
  napi_ref callback;
  napi_async_context context;
  uv_poll_t *handle;
  unsigned references;
  bool open;
};

static const napi_type_tag poll_tag = {0x686f6c6466617374, 0x706f6c6c68616e64};

static void release_poller(struct poller *poller) {
  if (--poller->references == 0)
    free(poller);
}

static void on_handle_closed(uv_handle_t *handle) {
  struct poller *poller = uv_handle_get_data(handle);
  struct instance *instance = poller->instance;
  free(handle);
  release_poller(poller);
  instance->closing--;
  if (instance->hook != NULL && instance->closing == 0) {
    napi_remove_async_cleanup_hook(instance->hook);
    free(instance->receive);
    free(instance);
  }
}

static void close_poller(struct poller *poller) {
  if (!poller->open)
    return;
  poller->open = false;
  *poller->link = poller->next;
  if (poller->next != NULL)
    poller->next->link = poller->link;
  napi_delete_reference(poller->env, poller->callback);
  napi_async_destroy(poller->env, poller->context);
  poller->instance->closing++;
  uv_close((uv_handle_t *)poller->handle, on_handle_closed);
}

static void on_poll(uv_poll_t *handle, int status, int events) {
  struct poller *poller = uv_handle_get_data((uv_handle_t *)handle);
  napi_env env = poller->env;
  napi_handle_scope scope;
  napi_value callback, receiver, argv[2], exception;
  CHECK(napi_open_handle_scope(env, &scope));
  CHECK(napi_get_reference_value(env, poller->callback, &callback));
  CHECK(napi_get_global(env, &receiver));
  argv[0] = number(env, status);
  argv[1] = number(env, from_uv_events(events));
  napi_status result = napi_make_callback(env, poller->context, receiver, callback, 2, argv, NULL);
  /* What a callback throws is an uncaught exception, as from any callback of Node. */
  if (result == napi_pending_exception && napi_get_and_clear_last_exception(env, &exception) == napi_ok)
    napi_fatal_exception(env, exception);
  napi_close_handle_scope(env, scope);
}

static void on_object_collected(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  release_poller(data);
}

static struct poller *open_handle(uv_loop_t *loop, int fd, int *error) {
  struct poller *poller = calloc(1, sizeof *poller);
  uv_poll_t *handle = calloc(1, uv_handle_size(UV_POLL));
  *error = poller == NULL || handle == NULL ? ENOMEM : -uv_poll_init(loop, handle, fd);
  if (*error != 0) {
    free(poller);
    free(handle);
    return NULL;
  }
  poller->handle = handle;
  uv_handle_set_data((uv_handle_t *)handle, poller);
  return poller;
}

static void register_poller(napi_env env, struct poller *poller, napi_value callback) {
  napi_value name;
  CHECK(napi_get_instance_data(env, (void **)&poller->instance));
  CHECK(napi_create_reference(env, callback, 1, &poller->callback));
  CHECK(napi_create_string_utf8(env, "holdfast.poll", NAPI_AUTO_LENGTH, &name));
  CHECK(napi_async_init(env, NULL, name, &poller->context));
  poller->env = env;
  poller->open = true;
  poller->references = 2;
  poller->link = &poller->instance->live;
  poller->next = poller->instance->live;
  if (poller->next != NULL)
    poller->next->link = &poller->next;
  poller->instance->live = poller;
}

static napi_value start_poll(napi_env env, napi_callback_info info) {
  napi_value argv[2], object;
  napi_valuetype type;
  uv_loop_t *loop;
  int fd, error;
  arguments(env, info, 2, argv);
  if (!get_fd(env, argv[0], &fd))
    return NULL;
  CHECK(napi_typeof(env, argv[1], &type));
  if (type != napi_function) {
    wrong_type(env, "a function");
    return NULL;
  }
  CHECK(napi_get_uv_event_loop(env, &loop));
  struct poller *poller = open_handle(loop, fd, &error);
  if (poller == NULL)
    return fail(env, error, "poll");
  register_poller(env, poller, argv[1]);
  CHECK(napi_create_object(env, &object));
  CHECK(napi_wrap(env, object, poller, on_object_collected, NULL, NULL));
  CHECK(napi_type_tag_object(env, object, &poll_tag));
  error = uv_handle_get_type((uv_handle_t *)poller->handle) == UV_POLL
              ? -uv_poll_start(poller->handle, UV_READABLE, on_poll)
              : ENOTSUP;
  if (error != 0) {
    close_poller(poller);
    return fail(env, error, "poll");
  }
  return object;
}

static bool get_poller(napi_env env, napi_value value, struct poller **poller) {
  napi_valuetype type;
  bool is_ours = false;
  CHECK(napi_typeof(env, value, &type));
  if (type == napi_object)
    napi_check_object_type_tag(env, value, &poll_tag, &is_ours);
  if (!is_ours || napi_unwrap(env, value, (void **)poller) != napi_ok)
    return wrong_type(env, "a poll handle");
  return true;
}

static napi_value set_poll(napi_env env, napi_callback_info info) {
  napi_value argv[2];
  struct poller *poller;
  int events;
  arguments(env, info, 2, argv);
  if (!get_poller(env, argv[0], &poller) || !get_integer(env, argv[1], 0, UV_READABLE | UV_WRITABLE | HANG_UP, &events))
    return NULL;
  if (!poller->open)
    return fail(env, EBADF, "poll");
  int error =
      events == 0 ? uv_poll_stop(poller->handle) : uv_poll_start(poller->handle, to_uv_events(events), on_poll);
  return error < 0 ? fail(env, -error, "poll") : undefined(env);
}

static napi_value stop_poll(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  struct poller *poller;
  arguments(env, info, 1, argv);
  if (!get_poller(env, argv[0], &poller))
    return NULL;
  close_poller(poller);
  return undefined(env);
}

/* ---- the module ---- */

/* The environment ends (a worker, or the process): its loop must see every handle closed before it is destroyed. */
static void on_environment_end(napi_async_cleanup_hook_handle hook, void *data) {
  struct instance *instance = data;
  instance->hook = hook;
  /* Holds the count above zero until all are on their way. */
  instance->closing++;
  while (instance->live != NULL)
    close_poller(instance->live);
  instance->closing--;
  if (instance->closing == 0) {
    napi_remove_async_cleanup_hook(hook);
    free(instance->receive);
    free(instance);
  }
}

static const struct {
  const char *name;
  napi_callback call;
} functions[] = {
    {"acceptFd", accept_fd},
    {"bytesReadable", bytes_readable},
    {"dropText", drop_text},
    {"dupCloexec", dup_cloexec},
    {"eventfd", make_eventfd},
    {"flock", lock_file},
    {"isHungUp", is_hung_up},
    {"isNsfs", is_nsfs},
    {"mallocTrim", malloc_trim_},
    {"memfd", plain_memfd},
    {"netnsSocket", netns_socket},
    {"pidfdOpen", pidfd_open_},
    {"pidfdSignal", pidfd_signal},
    {"pipe2", make_pipe},
    {"poll", start_poll},
    {"pollSet", set_poll},
    {"read", read_fd},
    {"recvFds", recv_fds},
    {"sealedMemfd", sealed_memfd},
    {"sendFds", send_fds},
    {"setNonblock", set_nonblock},
    {"setWinsize", set_winsize},
    {"shutdown", shut_down},
    {"socketpair", make_socketpair},
    {"unixConnect", unix_connect},
    {"unixDatagramSend", unix_datagram_send},
    {"unixListen", unix_listen},
    {"unpoll", stop_poll},
    {"write", write_fd},
};

NAPI_MODULE_INIT() {
  struct instance *instance = calloc(1, sizeof *instance);
  if (instance == NULL)
    return fail(env, ENOMEM, "load");
  CHECK(napi_set_instance_data(env, instance, NULL, NULL));
  CHECK(napi_add_async_cleanup_hook(env, on_environment_end, instance, NULL));
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    napi_value function;
    CHECK(napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].call, NULL, &function));
    CHECK(napi_set_named_property(env, exports, functions[i].name, function));
  }
  return exports;
}
