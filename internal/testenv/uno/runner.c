//go:build ignore

// Runs firmware on an emulated ATmega328P at 16 MHz, with USART0 on a pty.
//
//   runner [-f] [-s] [-d MS] [-l LINK] firmware.elf
//
//   -f       as fast as this machine can while there is something to do; real
//            time otherwise
//   -s       garble bytes if the host's baud rate is off by more than 4.5 %
//   -d MS    opening the pty resets the board, which then ignores input for so
//            long, like an Uno with its boot loader; its output is lost while
//            the pty is closed
//   -l LINK  a symbolic link to the pty, updated with each pty
//
// Commands come on stdin; each is answered with a line on stdout. README.md lists
// them. Events are printed in between: "PIN B5 1 <cycle>" for each output that
// changes, "RESET <cycle>" for each reset. The runner ends when stdin ends.

#define _GNU_SOURCE
#include <asm/termbits.h> // for arbitrary baud rates; excludes termios.h
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <simavr/avr_adc.h>
#include <simavr/avr_ioport.h>
#include <simavr/avr_uart.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>

#define FREQUENCY 16000000
#define CYCLES_PER_MS (FREQUENCY / 1000)
#define SLICE (CYCLES_PER_MS / 10) // between two reads of the pty
#define BUSY (100 * CYCLES_PER_MS) // how long a fast board runs at full speed after a byte

// Registers, by their address in data memory.
enum { MCUSR = 0x54, TCCR1A = 0x80, OCR1AL = 0x88, OCR1AH = 0x89, UCSR0A = 0xC0, UBRR0L = 0xC4, UBRR0H = 0xC5 };
enum { EXTRF = 1 << 1, COM1A1 = 1 << 7, U2X0 = 1 << 1 };

static bool fast, strict;
static int boot_ms = -1; // negative if opening the pty does not reset
static const char *link_path;

static avr_t *avr;
static FILE *out; // the original stdout: the emulator writes to stdout, too

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void open_out(void) {
  out = fdopen(dup(STDOUT_FILENO), "w");
  if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) die("stdout");
  setvbuf(out, NULL, _IOLBF, 0);
}

// ---- The pty ----------------------------------------------------------------

static int master = -1, slave = -1;
static bool host_was_there;

static void set_raw(int fd) {
  struct termios2 t;
  if (ioctl(fd, TCGETS2, &t)) die("TCGETS2");
  t.c_iflag = t.c_oflag = t.c_lflag = 0;
  t.c_cflag = CS8 | CREAD | CLOCAL | B9600;
  t.c_cc[VMIN] = 1;
  t.c_cc[VTIME] = 0;
  if (ioctl(fd, TCSETS2, &t)) die("TCSETS2");
}

// open_pty creates a pty and prints its path. It keeps the slave side open, so that
// nothing is lost without a host, unless the board must notice the host.
static void open_pty(void) {
  master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (master < 0 || grantpt(master) || unlockpt(master)) die("creating a pty");
  const char *path = ptsname(master);
  slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) die(path);
  set_raw(slave);
  if (boot_ms >= 0) {
    close(slave);
    slave = -1;
    host_was_there = false;
  }
  if (link_path) {
    unlink(link_path);
    if (symlink(path, link_path)) die(link_path);
  }
  fprintf(out, "PTY %s\n", path);
}

static void close_pty(void) {
  if (link_path) unlink(link_path);
  if (slave >= 0) close(slave);
  if (master >= 0) close(master);
  master = slave = -1;
}

static bool host_is_there(void) {
  struct pollfd p = {.fd = master};
  return master >= 0 && poll(&p, 1, 0) >= 0 && !(p.revents & POLLHUP);
}

// ---- The line between the pty and the USART ---------------------------------

static avr_uart_t *usart;
static avr_irq_t *usart_input;
static bool usart_has_room = true;
static avr_cycle_count_t last_byte; // cycle of the last byte
static unsigned long sent, got, garbled;

static int host_baud(void) {
  struct termios2 t;
  return master >= 0 && !ioctl(master, TCGETS2, &t) ? t.c_ospeed : 0;
}

static int cycles_per_bit(void) {
  int divisor = avr->data[UBRR0L] | (avr->data[UBRR0H] & 15) << 8;
  return (avr->data[UCSR0A] & U2X0 ? 8 : 16) * (divisor + 1);
}

static int board_baud(void) { return FREQUENCY / cycles_per_bit(); }

// correct_byte_time sets the length of a byte to ten bits. The emulator always adds
// a parity bit.
static void correct_byte_time(void) { usart->cycles_per_byte = 10 * cycles_per_bit(); }

// on_line returns a byte as it arrives, garbled if the baud rates differ.
static uint8_t on_line(uint8_t byte) {
  if (!strict) return byte;
  double error = (double)host_baud() / board_baud() - 1;
  if (-0.045 < error && error < 0.045) return byte;
  garbled++;
  return (byte ^ 0x9C) | 0x80;
}

static void on_sent(struct avr_irq_t *irq, uint32_t value, void *param) {
  (void)irq, (void)param;
  last_byte = avr->cycle;
  if (master < 0 || (boot_ms >= 0 && !(host_was_there && host_is_there()))) return;
  uint8_t byte = on_line(value);
  if (write(master, &byte, 1) == 1) sent++; // otherwise the buffer is full and the byte is lost
}

static void on_room(struct avr_irq_t *irq, uint32_t value, void *param) {
  (void)irq, (void)value;
  usart_has_room = param;
}

static void feed_usart(void) {
  uint8_t byte;
  while (master >= 0 && usart_has_room && read(master, &byte, 1) == 1) {
    got++;
    last_byte = avr->cycle;
    avr_raise_irq(usart_input, on_line(byte));
  }
}

static void drop_input(void) {
  char waste[256];
  while (master >= 0 && read(master, waste, sizeof waste) > 0) {
  }
}

// ---- The board --------------------------------------------------------------

static avr_irq_t *port_irq(char port, int bit) { return avr_io_getirq(avr, AVR_IOCTL_IOPORT_GETIRQ(port), bit); }

static bool driven_by_timer(char port, int bit) { return port == 'B' && bit == 1 && avr->data[TCCR1A] & COM1A1; }

static void on_pin(struct avr_irq_t *irq, uint32_t value, void *param) {
  char port = (intptr_t)param;
  if (driven_by_timer(port, irq->irq)) return;
  fprintf(out, "PIN %c%d %d %llu\n", port, irq->irq, value & 1, (unsigned long long)avr->cycle);
}

static void (*reset_core)(avr_t *);

static void on_reset(avr_t *a) {
  if (reset_core) reset_core(a);
  usart_has_room = true;
  fprintf(out, "RESET %llu\n", (unsigned long long)a->cycle);
}

static void never_sleep(avr_t *a, avr_cycle_count_t cycles) { (void)a, (void)cycles; }

static void make_board(const char *path) {
  elf_firmware_t firmware = {0};
  if (elf_read_firmware(path, &firmware)) {
    fprintf(stderr, "cannot read firmware %s\n", path);
    exit(1);
  }
  avr = avr_make_mcu_by_name("atmega328p");
  avr_init(avr);
  firmware.frequency = FREQUENCY;
  avr_load_firmware(avr, &firmware);
  avr->vcc = avr->avcc = avr->aref = 5000;
  avr->log = LOG_ERROR;
  avr->sleep = never_sleep; // keep_pace does that
  reset_core = avr->reset;
  avr->reset = on_reset;
}

static avr_uart_t *find_usart(void) {
  for (avr_io_t *io = avr->io_port; io; io = io->next)
    if (!strcmp(io->kind, "uart") && ((avr_uart_t *)io)->name == '0') return (avr_uart_t *)io;
  fprintf(stderr, "the chip has no USART\n");
  exit(1);
}

static void connect_usart(void) {
  usart = find_usart();
  uint32_t flags = 0; // no echo to stdout and no sleeping
  avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
  avr_irq_t *irqs = avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), 0);
  usart_input = irqs + UART_IRQ_INPUT;
  avr_irq_register_notify(irqs + UART_IRQ_OUTPUT, on_sent, NULL);
  avr_irq_register_notify(irqs + UART_IRQ_OUT_XON, on_room, avr);
  avr_irq_register_notify(irqs + UART_IRQ_OUT_XOFF, on_room, NULL);
}

static void watch_pins(void) {
  for (const char *port = "BCD"; *port; port++)
    for (int bit = 0; bit < 8; bit++) avr_irq_register_notify(port_irq(*port, bit), on_pin, (void *)(intptr_t)*port);
}

// reset_board acts like the reset pin.
static void reset_board(void) {
  avr_reset(avr);
  avr->data[MCUSR] |= EXTRF;
}

// ---- Time -------------------------------------------------------------------

static double paused_until, pace_time;
static bool booting; // paused as if in the boot loader
static avr_cycle_count_t pace_cycle;

static void restart_pace(void) {
  pace_time = now();
  pace_cycle = avr->cycle;
}

static void nap(double seconds) {
  struct timespec t = {.tv_nsec = seconds * 1e9};
  nanosleep(&t, NULL);
}

// keep_pace waits until the board is no longer ahead of real time. A board that is
// far behind does not catch up.
static void keep_pace(void) {
  if (fast && avr->cycle - last_byte < BUSY) {
    restart_pace();
    return;
  }
  double ahead = (double)(avr->cycle - pace_cycle) / FREQUENCY - (now() - pace_time);
  if (ahead < -0.05 || ahead > 0.05) restart_pace();
  else if (ahead > 0.0001) nap(ahead);
}

static void pause_board(int ms) { paused_until = now() + ms / 1e3; }

// run_slice runs the board for a moment. It returns false if the chip has stopped.
static bool run_slice(void) {
  for (avr_cycle_count_t start = avr->cycle; avr->cycle - start < SLICE;) {
    int state = avr_run(avr);
    if (state == cpu_Done || state == cpu_Crashed) return false;
  }
  return true;
}

// ---- Commands ---------------------------------------------------------------

static bool is_pin(char port, int bit) { return strchr("BCD", port) && bit >= 0 && bit < 8; }

static int duty(void) { return avr->data[TCCR1A] & COM1A1 ? avr->data[OCR1AL] | avr->data[OCR1AH] << 8 : 0; }

static void print_cycles(void) {
  fprintf(out, "CYCLES %llu sent %lu got %lu garbled %lu host %d board %d\n", (unsigned long long)avr->cycle, sent, got, garbled, host_baud(),
         board_baud());
}

static void run_command(const char *command) {
  int n, value;
  char port;
  if (!strcmp(command, "quit")) exit(0);
  if (!strcmp(command, "cycles")) {
    print_cycles();
    return;
  }
  if (!strcmp(command, "pwm")) {
    fprintf(out, "PWM %d\n", duty());
    return;
  }
  if (!strcmp(command, "waiting")) {
    n = 0;
    if (master >= 0) ioctl(master, FIONREAD, &n);
    fprintf(out, "WAITING %d\n", n);
    return;
  }
  if (!strcmp(command, "replug")) {
    close_pty();
    open_pty();
    return;
  }
  if (!strcmp(command, "hangup")) close_pty();
  else if (!strcmp(command, "reset")) reset_board();
  else if (sscanf(command, "pause %d", &n) == 1) pause_board(n);
  else if (sscanf(command, "adc %d %d", &n, &value) == 2 && n >= 0 && n < 8)
    avr_raise_irq(avr_io_getirq(avr, AVR_IOCTL_ADC_GETIRQ, ADC_IRQ_ADC0 + n), value);
  else if (sscanf(command, "pin %c%d %d", &port, &n, &value) == 3 && is_pin(port, n)) avr_raise_irq(port_irq(port, n), value != 0);
  else if (sscanf(command, "pin %c%d", &port, &n) == 2 && is_pin(port, n)) {
    fprintf(out, "LEVEL %d\n", port_irq(port, n)->value & 1);
    return;
  } else {
    fprintf(out, "ERR %s\n", command);
    return;
  }
  fprintf(out, "OK\n");
}

// read_commands runs the waiting commands, and exits when stdin ends.
static void read_commands(void) {
  static char command[128];
  static size_t length;
  char text[128];
  ssize_t n = read(STDIN_FILENO, text, sizeof text);
  if (n == 0 || (n < 0 && errno != EAGAIN)) exit(0);
  for (ssize_t i = 0; i < n; i++) {
    if (text[i] != '\n') {
      if (length < sizeof command - 1) command[length++] = text[i];
      continue;
    }
    command[length] = 0;
    length = 0;
    run_command(command);
  }
}

// notice_host resets the board when a host opens the pty.
static void notice_host(void) {
  bool there = host_is_there();
  if (there && !host_was_there) {
    reset_board();
    pause_board(boot_ms);
    booting = true;
  }
  host_was_there = there;
}

static void parse_options(int argc, char **argv) {
  for (int option; (option = getopt(argc, argv, "fsd:l:")) != -1;) {
    if (option == 'f') fast = true;
    else if (option == 's') strict = true;
    else if (option == 'd') boot_ms = atoi(optarg);
    else if (option == 'l') link_path = optarg;
    else exit(1);
  }
  if (optind != argc - 1) {
    fprintf(stderr, "usage: runner [-f] [-s] [-d MS] [-l LINK] firmware.elf\n");
    exit(1);
  }
}

int main(int argc, char **argv) {
  parse_options(argc, argv);
  open_out();
  make_board(argv[optind]);
  connect_usart();
  watch_pins();
  fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
  atexit(close_pty);
  open_pty();
  restart_pace();
  for (;;) {
    if (now() < paused_until) {
      read_commands();
      if (booting) drop_input();
      nap(0.001);
      restart_pace();
      continue;
    }
    booting = false;
    if (!run_slice()) {
      fprintf(out, "CRASH\n");
      return 2;
    }
    correct_byte_time();
    if (boot_ms >= 0) notice_host();
    feed_usart();
    read_commands();
    keep_pace();
  }
}
