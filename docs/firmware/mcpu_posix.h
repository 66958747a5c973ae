// mcpu_posix.h runs mcpu.h in a program for Linux and other Unix systems.
//
//   #define _POSIX_C_SOURCE 200809L
//   #include "mcpu_posix.h"
//
//   int main(int argc, char **argv) {
//     mcpu_begin("desk", "1.0.0");
//     ...
//     return mcpu_serve(argc > 1 ? argv[1] : NULL);
//   }
//
// Without an argument the program speaks on standard input and output, which is good for a
// first try and for inetd or systemd sockets. With "4242" or "192.168.1.20:4242" it listens
// on TCP, for one client at a time; one that is silent for a minute makes room for the next.
// The protocol has no passwords: without an address it listens on 127.0.0.1 only.
//
// If the program has pins, it defines MCPU_HAS_PINS and the three functions mcpu_pin_begin,
// mcpu_pin_write and mcpu_pin_read.
#ifndef MCPU_POSIX_H
#define MCPU_POSIX_H

#ifndef MCPU_PLATFORM
#define MCPU_PLATFORM "posix"
#endif
#include "mcpu.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int mcpu_in_fd = STDIN_FILENO, mcpu_out_fd = STDOUT_FILENO;
static int mcpu_listener = -1; // -1 if the program does not listen
static bool mcpu_gone;         // the other side has closed the connection
static uint32_t mcpu_active;   // when it last sent something or took an answer

#ifndef MCPU_SILENCE
#define MCPU_SILENCE 60000 // milliseconds after which a client makes room for the next one
#endif

static uint32_t mcpu_millis(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint32_t)((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

// mcpu_send gives up a peer that reads nothing for the time that mcpu_converse sets.
static void mcpu_send(const char *bytes, size_t n) {
  while (n && !mcpu_gone) {
    ssize_t done = write(mcpu_out_fd, bytes, n);
    if (done > 0) bytes += done, n -= (size_t)done, mcpu_active = mcpu_millis();
    else if (errno != EINTR) mcpu_gone = true;
  }
}

static size_t mcpu_receive(char *to, size_t room) {
  struct pollfd p = {mcpu_in_fd, POLLIN, 0};
  if (!room || mcpu_gone || poll(&p, 1, 0) <= 0) return 0;
  ssize_t n = read(mcpu_in_fd, to, room);
  if (n > 0) return mcpu_active = mcpu_millis(), (size_t)n;
  if (n == 0 || errno != EINTR) mcpu_gone = true;
  return 0;
}

#ifndef MCPU_HAS_PINS
static void mcpu_pin_begin(int pin, int type) { (void)pin, (void)type; }
static bool mcpu_pin_write(int pin, int type, int value) { return (void)pin, (void)type, (void)value, false; }
static int mcpu_pin_read(int pin, int type) { return (void)pin, (void)type, MCPU_NO_VALUE; }
#endif

// mcpu_wait waits for input, or until it is time for a sample; at most a second.
MCPU_API void mcpu_wait(int fd) {
  int wait = 1000;
  for (uint8_t i = 0; i < mcpu.sampled_count; i++) {
    int32_t left = (int32_t)(mcpu.sampled[i].due - mcpu_millis());
    if (left < wait) wait = left < 0 ? 0 : left;
  }
  struct pollfd p = {fd, POLLIN, 0};
  poll(&p, 1, wait);
}

// mcpu_displaced reports whether the peer is silent and another one waits.
MCPU_API bool mcpu_displaced(void) {
  struct pollfd p = {mcpu_listener, POLLIN, 0}; // -1 is never ready
  return mcpu_millis() - mcpu_active >= MCPU_SILENCE && poll(&p, 1, 0) > 0;
}

// mcpu_converse serves one peer until it is gone. Requests that are already here are
// answered before that. A peer on a socket is dropped if it sends something else, reads
// nothing for 5 seconds, or is silent while another one waits: it would block the next one.
MCPU_API void mcpu_converse(int in, int out) {
  struct timeval patience = {5, 0};
  bool on_socket = setsockopt(out, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0;
  mcpu_in_fd = in, mcpu_out_fd = out, mcpu_gone = false, mcpu_active = mcpu_millis();
  mcpu_forget();
  while (!mcpu_gone || memchr(mcpu.in, '\n', mcpu.received)) {
    if (!memchr(mcpu.in, '\n', mcpu.received)) mcpu_wait(in);
    mcpu_loop();
    if (on_socket && (mcpu_strayed() || mcpu_displaced())) return;
  }
}

MCPU_API int mcpu_listen(const char *address) {
  struct sockaddr_in at;
  char host[64] = "127.0.0.1";
  const char *colon = strrchr(address, ':'), *port = colon ? colon + 1 : address;
  if (colon && (size_t)(colon - address) < sizeof host) {
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = 0;
  }
  memset(&at, 0, sizeof at);
  at.sin_family = AF_INET;
  at.sin_port = htons((uint16_t)atoi(port));
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (fd < 0 || inet_pton(AF_INET, host, &at.sin_addr) != 1 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
      bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1)) {
    perror(address);
    return -1;
  }
  return fd;
}

// mcpu_serve serves until standard input ends, or on TCP for ever. It returns the exit code.
MCPU_API int mcpu_serve(const char *address) {
  signal(SIGPIPE, SIG_IGN);
  if (!address) {
    mcpu_converse(STDIN_FILENO, STDOUT_FILENO);
    return 0;
  }
  int listener = mcpu_listener = mcpu_listen(address);
  if (listener < 0) return 1;
  for (;;) {
    struct pollfd p = {listener, POLLIN, 0};
    mcpu_wait(listener);
    mcpu_take_samples(); // also while nobody is connected
    if (poll(&p, 1, 0) <= 0) continue;
    int peer = accept(listener, NULL, NULL), on = 1;
    if (peer < 0) continue;
    // A peer that vanished without a word must not block the next one for ever.
    setsockopt(peer, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef TCP_KEEPIDLE
    int idle = 10, interval = 5, count = 3;
    setsockopt(peer, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(peer, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(peer, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
#endif
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    mcpu_converse(peer, peer);
    close(peer);
  }
}

#endif
