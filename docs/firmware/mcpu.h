// mcpu.h: an MCP/U device in one header, for Arduino, Linux and bare chips. C99 or C++11.
//
//   #include "mcpu.h"
//
//   static void blink(void) {                       // runs when somebody calls the tool
//     long times = mcpu_int("times");               // exists, and is in its range
//     ...
//     mcpu_put_int("blinked", times);               // a field of the answer
//   }
//
//   void setup() {
//     Serial.begin(115200);
//     mcpu_begin("lamp", "1.0.0");
//     mcpu_pin(13, "led", MCPU_DIGITAL_OUTPUT, "The LED on the board");
//     mcpu_tool("blink", "Blink the LED", blink);
//     mcpu_arg_int("times", 1, 10, "how often");    // an argument of the tool above
//   }
//
//   void loop() { mcpu_loop(Serial); }
//
// Include it in one file of your program. Names and texts must be literals: on Arduino they
// stay in flash. A handler must return soon: no input is read while it runs. It answers by
// itself with the fields that it has put, in one object.
//
// What it does for you:
//   - Only whole lines are requests. A line may arrive in pieces, and a second one while the
//     first is answered.
//   - A line that is too long is answered with an error, and with its ID if that came first.
//   - Arguments are checked before the handler runs. A call that is refused changes nothing.
//   - Outputs are low from mcpu_pin() on, and PWM duties are checked.
//
// There is no heap. An Uno with 8 pins and 8 tools has about half of its 2 KB left; other
// Arduino boards need about 8 KB.
#ifndef MCPU_H
#define MCPU_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- Sizes: define your own before the #include ---------------------------------------

#if defined __AVR__
#define MCPU_BY_SIZE(avr, board, computer) avr
#elif defined ARDUINO
#define MCPU_BY_SIZE(avr, board, computer) board
#else
#define MCPU_BY_SIZE(avr, board, computer) computer
#endif
#ifndef MCPU_PINS
#define MCPU_PINS MCPU_BY_SIZE(8, 16, 32)
#endif
#ifndef MCPU_TOOLS
#define MCPU_TOOLS MCPU_BY_SIZE(8, 16, 32)
#endif
#ifndef MCPU_ARGS // of all tools together
#define MCPU_ARGS MCPU_BY_SIZE(8, 32, 64)
#endif
#ifndef MCPU_SAMPLED // pins with samples
#define MCPU_SAMPLED MCPU_BY_SIZE(2, 8, 8)
#endif
#ifndef MCPU_SAMPLES // of all pins together
#define MCPU_SAMPLES MCPU_BY_SIZE(40, 800, 2400)
#endif
#ifndef MCPU_LINE // longest request with its line end
#define MCPU_LINE MCPU_BY_SIZE(256, 1024, 4096)
#endif
#ifndef MCPU_AHEAD // what may arrive while a request is answered
#define MCPU_AHEAD MCPU_BY_SIZE(64, 1024, 4096)
#endif
#ifndef MCPU_OUT // written at once
#define MCPU_OUT MCPU_BY_SIZE(32, 1024, 1024)
#endif

// Counters have 8 bits, and places in buffers 16.
#if MCPU_PINS > 255 || MCPU_TOOLS > 255 || MCPU_ARGS > 255 || MCPU_SAMPLED > 255
#error "MCPU_PINS, MCPU_TOOLS, MCPU_ARGS and MCPU_SAMPLED must be at most 255"
#endif
#if MCPU_LINE < 65 // the beginning of a line that is too long is kept
#error "MCPU_LINE must be at least 65"
#endif
#if MCPU_AHEAD < 0 || MCPU_LINE + MCPU_AHEAD > 65535
#error "MCPU_LINE and MCPU_AHEAD must be at most 65535 together"
#endif
#if MCPU_OUT < 1 || MCPU_OUT > 65535 || MCPU_SAMPLES > 65535
#error "MCPU_OUT and MCPU_SAMPLES must be at most 65535"
#endif

// For the millivolts in adc_read: the voltage of the reference, and the value that stands for it.
#if !defined MCPU_ADC_MV && defined __AVR__
#define MCPU_ADC_MV 5000
#endif
#ifndef MCPU_ADC_MAX
#define MCPU_ADC_MAX 1023
#endif

// A named profile promises the built-in tools and a limit of the line: "low" and "conservative"
// are 255 bytes, "rich" is 511. Without one, only the tools that have pins are listed.
#ifndef MCPU_PROFILE
#if MCPU_LINE < 512
#define MCPU_PROFILE "low"
#elif defined ARDUINO
#define MCPU_PROFILE "rich"
#endif
#endif

// ---- What the header needs from the machine -------------------------------------------

enum { MCPU_DIGITAL_OUTPUT, MCPU_DIGITAL_INPUT, MCPU_PWM_OUTPUT, MCPU_ADC_INPUT };

#define MCPU_NO_VALUE INT_MIN // of a pin that could not be read
#define MCPU_API static __attribute__((unused))

MCPU_API void mcpu_step(void);

#ifdef ARDUINO

#include <Arduino.h>
#define MCPU_TEXT(s) PSTR(s)
#define MCPU_CHAR(p) ((char)pgm_read_byte(p))
#ifndef MCPU_PLATFORM
#define MCPU_PLATFORM "arduino"
#endif

static Stream *mcpu_port;

// mcpu_loop reads what has arrived, answers at most one request, and takes samples. Call it
// as often as you can: at 115200 baud an AVR loses bytes after 5 ms.
MCPU_API void mcpu_loop(Stream &port) {
  mcpu_port = &port;
  mcpu_step();
}

static uint32_t mcpu_millis(void) { return millis(); }
static void mcpu_send(const char *bytes, size_t n) { mcpu_port->write((const uint8_t *)bytes, n); }
static size_t mcpu_receive(char *to, size_t room) {
  size_t n = 0;
  while (n < room && mcpu_port->available() > 0) to[n++] = (char)mcpu_port->read();
  return n;
}
static bool mcpu_pin_write(int pin, int type, int value) {
  if (type == MCPU_PWM_OUTPUT) analogWrite(pin, value);
  else digitalWrite(pin, value ? HIGH : LOW);
  return true;
}
static int mcpu_pin_read(int pin, int type) { return type == MCPU_ADC_INPUT ? analogRead(pin) : digitalRead(pin) == HIGH; }
static void mcpu_pin_begin(int pin, int type) {
  if (type == MCPU_DIGITAL_INPUT) pinMode(pin, INPUT);
  if (type != MCPU_DIGITAL_OUTPUT && type != MCPU_PWM_OUTPUT) return;
  digitalWrite(pin, LOW); // first, so that the pin does not jump
  pinMode(pin, OUTPUT);
}

#else // The program has these functions. For Linux, mcpu_posix.h has the first three.

#define MCPU_TEXT(s) ("" s)
#define MCPU_CHAR(p) (*(p))
#ifndef MCPU_PLATFORM
#define MCPU_PLATFORM "c"
#endif

static uint32_t mcpu_millis(void);
static void mcpu_send(const char *bytes, size_t n);       // all of them
static size_t mcpu_receive(char *to, size_t room);        // what has arrived; does not wait
static void mcpu_pin_begin(int pin, int type);            // outputs must be low after it
static bool mcpu_pin_write(int pin, int type, int value); // 0 or 1; 0 to 255 for PWM; false if it failed
static int mcpu_pin_read(int pin, int type);              // or MCPU_NO_VALUE

// mcpu_loop reads what has arrived, answers at most one request, and takes samples.
MCPU_API void mcpu_loop(void) { mcpu_step(); }

#endif

// ---- State ----------------------------------------------------------------------------

typedef const char *mcpu_flash; // a text that is read with MCPU_CHAR

enum { MCPU_INT, MCPU_NUMBER, MCPU_BOOL, MCPU_STRING };

struct mcpu_arg {
  mcpu_flash name, text;
  long min, max; // of an integer; the longest length of a string
  uint8_t type;
};
struct mcpu_tool_entry {
  mcpu_flash name, text;
  void (*run)(void);
  uint16_t poll_ms; // 0 for none
  uint8_t first_arg, args;
};
struct mcpu_pin_entry {
  mcpu_flash name, text;
  int number;
  uint8_t type;
  uint8_t sampled; // 1 + index; 0 for none
};
struct mcpu_sampled {
  uint32_t due;
  uint32_t count;
  uint16_t every, size, first, kept, next; // first is where its ring starts in values
  int latest, min, max, low, high;
  bool thresholds;
  float average;
};

static struct {
  mcpu_flash name, version, wrong; // wrong: what is wrong with setup()
  struct mcpu_pin_entry pins[MCPU_PINS];
  struct mcpu_tool_entry tools[MCPU_TOOLS];
  struct mcpu_arg args[MCPU_ARGS];
  struct mcpu_sampled sampled[MCPU_SAMPLED];
  int values[MCPU_SAMPLES];
  uint8_t pin_count, tool_count, arg_count, sampled_count;
  uint16_t value_count;

  char in[MCPU_LINE + MCPU_AHEAD], out[MCPU_OUT];
  uint16_t received, sending;
  bool too_long;
  bool stray;   // a line did not begin as a request
  bool reading; // samples are being sent, and must not change

  const char *id, *params; // of the request; NULL if there are none
  uint8_t answer;          // what was sent of it
} mcpu;

enum { MCPU_IDLE, MCPU_NOTHING, MCPU_RESULT, MCPU_ERROR }; // answer; idle between requests

// ---- Sending --------------------------------------------------------------------------

// mcpu_fill keeps what has arrived, also while an answer is sent.
MCPU_API void mcpu_fill(void) { mcpu.received += mcpu_receive(mcpu.in + mcpu.received, sizeof mcpu.in - mcpu.received); }

static void mcpu_take_samples(void);

// mcpu_flush sends what is in the buffer. A long answer takes longer than a sample.
MCPU_API void mcpu_flush(void) {
  if (mcpu.sending) mcpu_send(mcpu.out, mcpu.sending);
  mcpu.sending = 0;
  mcpu_fill();
  if (!mcpu.reading) mcpu_take_samples();
}

MCPU_API void mcpu_char(char c) {
  mcpu.out[mcpu.sending++] = c;
  if (mcpu.sending == sizeof mcpu.out) mcpu_flush();
}

// mcpu_json sends a part of a message. Apostrophes stand for quotes.
MCPU_API void mcpu_json(mcpu_flash s) {
  for (char c; (c = MCPU_CHAR(s)); s++) mcpu_char(c == '\'' ? '"' : c);
}
#define MCPU_JSON(s) mcpu_json(MCPU_TEXT(s))

MCPU_API void mcpu_escaped(char c) {
  if (c == '"' || c == '\\') mcpu_char('\\');
  mcpu_char((unsigned char)c < ' ' ? ' ' : c);
}

MCPU_API void mcpu_quoted(mcpu_flash s) {
  mcpu_char('"');
  for (char c; (c = MCPU_CHAR(s)); s++) mcpu_escaped(c);
  mcpu_char('"');
}

MCPU_API void mcpu_long(long n) {
  char digits[20];
  uint8_t i = 0;
  unsigned long rest = n < 0 ? 0UL - (unsigned long)n : (unsigned long)n;
  do digits[i++] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (n < 0) mcpu_char('-');
  while (i) mcpu_char(digits[--i]);
}

// mcpu_value sends a sample, and null if it could not be read.
MCPU_API void mcpu_value(int v) {
  if (v == MCPU_NO_VALUE) MCPU_JSON("null");
  else mcpu_long(v);
}

// mcpu_fixed sends a number with up to 6 decimals, and null if it has no number for it.
MCPU_API void mcpu_fixed(double v, uint8_t decimals) {
  if (!(v > -2e9 && v < 2e9)) {
    MCPU_JSON("null");
    return;
  }
  if (v < 0) mcpu_char('-'), v = -v;
  double half = 0.5;
  for (uint8_t i = 0; i < decimals; i++) half /= 10;
  v += half;
  unsigned long whole = (unsigned long)v;
  mcpu_long((long)whole);
  if (decimals) mcpu_char('.');
  for (v -= (double)whole; decimals; decimals--) {
    v *= 10;
    uint8_t digit = (uint8_t)v;
    mcpu_char((char)('0' + digit));
    v -= digit;
  }
}

// ---- JSON: a value is a pointer to its first character in a text that ends with 0 ------

static const char *mcpu_skip(const char *p, uint8_t depth);

MCPU_API const char *mcpu_space(const char *p) {
  while (*p == ' ' || *p == '\t' || *p == '\r') p++;
  return p;
}

MCPU_API bool mcpu_digit(char c) { return c >= '0' && c <= '9'; }

MCPU_API const char *mcpu_skip_string(const char *p) {
  for (p++; *p != '"'; p++) {
    if ((unsigned char)*p < ' ') return NULL;
    if (*p != '\\') continue;
    char c = *++p;
    if (c == 'u')
      for (uint8_t i = 0; i < 4; i++) {
        c = *++p;
        if (!mcpu_digit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F')) return NULL;
      }
    else if (c != '"' && c != '\\' && c != '/' && c != 'b' && c != 'f' && c != 'n' && c != 'r' && c != 't') return NULL;
  }
  return p + 1;
}

MCPU_API const char *mcpu_skip_number(const char *p) {
  if (*p == '-') p++;
  if (!mcpu_digit(*p) || (*p == '0' && mcpu_digit(p[1]))) return NULL;
  while (mcpu_digit(*p)) p++;
  if (*p == '.') {
    if (!mcpu_digit(*++p)) return NULL;
    while (mcpu_digit(*p)) p++;
  }
  if (*p == 'e' || *p == 'E') {
    p++;
    if (*p == '+' || *p == '-') p++;
    if (!mcpu_digit(*p)) return NULL;
    while (mcpu_digit(*p)) p++;
  }
  return p;
}

// mcpu_word skips a text, or returns NULL.
MCPU_API const char *mcpu_word(const char *p, mcpu_flash word) {
  for (char c; (c = MCPU_CHAR(word)); word++, p++)
    if (*p != c) return NULL;
  return p;
}

// mcpu_next skips a value of an object or array and what follows it. It returns NULL if the
// text is malformed, and sets done behind the last value.
MCPU_API const char *mcpu_next(const char *p, char close, uint8_t depth, bool *done) {
  if (!(p = mcpu_skip(p, depth))) return NULL;
  p = mcpu_space(p);
  *done = *p == close;
  if (*p != ',' && !*done) return NULL;
  return mcpu_space(p + 1);
}

// mcpu_key skips the name of a member and the colon.
MCPU_API const char *mcpu_key(const char *p) {
  if (*p != '"' || !(p = mcpu_skip_string(p))) return NULL;
  p = mcpu_space(p);
  return *p == ':' ? mcpu_space(p + 1) : NULL;
}

MCPU_API const char *mcpu_skip_members(const char *p, char close, uint8_t depth) {
  bool done = false;
  p = mcpu_space(p + 1);
  if (*p == close) return p + 1;
  while (p && !done) {
    if (close == '}' && !(p = mcpu_key(p))) return NULL;
    p = mcpu_next(p, close, depth, &done);
  }
  return p;
}

// mcpu_skip returns a pointer behind a value, or NULL if it is malformed or too deep.
static const char *mcpu_skip(const char *p, uint8_t depth) {
  if (!depth) return NULL;
  switch (*p) {
  case '{': return mcpu_skip_members(p, '}', depth - 1);
  case '[': return mcpu_skip_members(p, ']', depth - 1);
  case '"': return mcpu_skip_string(p);
  case 't': return mcpu_word(p, MCPU_TEXT("true"));
  case 'f': return mcpu_word(p, MCPU_TEXT("false"));
  case 'n': return mcpu_word(p, MCPU_TEXT("null"));
  }
  return mcpu_skip_number(p);
}

enum { MCPU_DEPTH = 8 };

MCPU_API bool mcpu_is(const char *value, mcpu_flash want) {
  return value && *value == '"' && (value = mcpu_word(value + 1, want)) && *value == '"';
}

// mcpu_member returns a member of an object, or NULL. The object may be cut off: then the
// members before that are found.
MCPU_API const char *mcpu_member(const char *object, mcpu_flash name) {
  bool done = false;
  if (!object || *object != '{') return NULL;
  for (const char *p = mcpu_space(object + 1); p && !done && *p != '}';) {
    const char *key = p;
    if (!(p = mcpu_key(p))) return NULL;
    const char *value = p;
    p = mcpu_next(p, '}', MCPU_DEPTH, &done);
    if (p && mcpu_is(key, name)) return value;
  }
  return NULL;
}

// mcpu_read_long reads a whole number in a range; 5.0 is one.
MCPU_API bool mcpu_read_long(const char *p, long min, long max, long *out) {
  if (!p || (*p != '-' && !mcpu_digit(*p))) return false;
  bool negative = *p == '-';
  if (negative) p++;
  unsigned long n = 0;
  for (; mcpu_digit(*p); p++) {
    if (n > 214748364UL) return false;
    n = n * 10 + (unsigned long)(*p - '0');
  }
  if (*p == '.')
    for (p++; *p == '0'; p++) {
    }
  if (mcpu_digit(*p) || *p == 'e' || *p == 'E') return false;
  if (n > 2147483647UL) return false;
  *out = negative ? -(long)n : (long)n;
  return *out >= min && *out <= max;
}

// ---- Answers --------------------------------------------------------------------------

// mcpu_end_id sends the ID as it came, and ends the line.
MCPU_API void mcpu_end_id(void) {
  MCPU_JSON(",'jsonrpc':'2.0','id':");
  const char *end = mcpu.id ? mcpu_skip(mcpu.id, 1) : NULL;
  if (!end) mcpu_char('0');
  else
    for (const char *p = mcpu.id; p < end; p++) mcpu_char(*p);
  MCPU_JSON("}\r\n");
  mcpu.reading = false;
  mcpu_flush();
  mcpu.answer = MCPU_IDLE;
}

// mcpu_error_begin starts an error, unless there is an answer already. The message follows.
MCPU_API bool mcpu_error_begin(int code) {
  if (mcpu.answer != MCPU_NOTHING) return false;
  mcpu.answer = MCPU_ERROR;
  MCPU_JSON("{'error':{'code':");
  mcpu_long(code);
  MCPU_JSON(",'message':'");
  return true;
}

MCPU_API void mcpu_error_text(mcpu_flash s) {
  for (char c; (c = MCPU_CHAR(s)); s++) mcpu_escaped(c);
}

MCPU_API void mcpu_error(int code, mcpu_flash text) {
  if (!mcpu_error_begin(code)) return;
  mcpu_error_text(text);
  mcpu_char('"');
}

// mcpu_refuse and mcpu_fail answer with an error, if the handler has put no field before.
// Refuse: nothing was done. Fail: it was tried, and may be done in part.
#define mcpu_refuse(text) mcpu_error(-32602, MCPU_TEXT(text))
#define mcpu_fail(text) mcpu_error(-32000, MCPU_TEXT(text))

MCPU_API void mcpu_bad(mcpu_flash arg, mcpu_flash text) {
  if (!mcpu_error_begin(-32602)) return;
  mcpu_error_text(arg);
  mcpu_error_text(text);
  mcpu_char('"');
}

// mcpu_field starts a field of the answer.
MCPU_API bool mcpu_field(mcpu_flash name) {
  if (mcpu.answer == MCPU_ERROR || mcpu.answer == MCPU_IDLE) return false;
  if (mcpu.answer == MCPU_NOTHING) MCPU_JSON("{'result':{");
  else mcpu_char(',');
  mcpu.answer = MCPU_RESULT;
  mcpu_quoted(name);
  mcpu_char(':');
  return true;
}

MCPU_API void mcpu_field_int(mcpu_flash name, long v) {
  if (mcpu_field(name)) mcpu_long(v);
}
MCPU_API void mcpu_field_bool(mcpu_flash name, bool v) {
  if (mcpu_field(name)) mcpu_json(v ? MCPU_TEXT("true") : MCPU_TEXT("false"));
}
MCPU_API void mcpu_field_number(mcpu_flash name, double v, uint8_t decimals) {
  if (mcpu_field(name)) mcpu_fixed(v, decimals);
}
MCPU_API void mcpu_field_text(mcpu_flash name, const char *v) {
  if (!mcpu_field(name)) return;
  mcpu_char('"');
  while (*v) mcpu_escaped(*v++);
  mcpu_char('"');
}
MCPU_API void mcpu_field_flash(mcpu_flash name, mcpu_flash v) {
  if (mcpu_field(name)) mcpu_quoted(v);
}

// A handler puts the fields of its answer.
#define mcpu_put_int(name, v) mcpu_field_int(MCPU_TEXT(name), v)
#define mcpu_put_bool(name, v) mcpu_field_bool(MCPU_TEXT(name), v)
#define mcpu_put_number(name, v, decimals) mcpu_field_number(MCPU_TEXT(name), v, decimals)
#define mcpu_put_text(name, v) mcpu_field_text(MCPU_TEXT(name), v) // v: a text in memory, UTF-8

// ---- Arguments ------------------------------------------------------------------------

MCPU_API long mcpu_value_int(mcpu_flash name) {
  long v = 0;
  mcpu_read_long(mcpu_member(mcpu.params, name), INT32_MIN, INT32_MAX, &v);
  return v;
}
MCPU_API double mcpu_value_number(mcpu_flash name) {
  const char *p = mcpu_member(mcpu.params, name);
  return p ? strtod(p, NULL) : 0;
}
MCPU_API bool mcpu_value_bool(mcpu_flash name) {
  const char *p = mcpu_member(mcpu.params, name);
  return p && *p == 't';
}
// mcpu_value_text copies a text. An escape becomes its character, \u and what does not fit '?'.
MCPU_API size_t mcpu_value_text(mcpu_flash name, char *to, size_t size) {
  const char *p = mcpu_member(mcpu.params, name);
  size_t n = 0;
  if (p && *p == '"')
    for (p++; *p != '"' && n + 1 < size; p++) {
      char c = *p;
      if (c == '\\') {
        c = *++p;
        if (c == 'n') c = '\n';
        else if (c == 't') c = '\t';
        else if (c == 'b' || c == 'f' || c == 'r') c = ' ';
        else if (c == 'u') {
          for (uint8_t i = 0; i < 4 && p[1] != '"'; i++) p++;
          c = '?';
        }
      }
      to[n++] = c;
    }
  if (size) to[n] = 0;
  return n;
}

// A handler reads its arguments. They were checked before.
#define mcpu_int(name) mcpu_value_int(MCPU_TEXT(name))
#define mcpu_number(name) mcpu_value_number(MCPU_TEXT(name))
#define mcpu_bool(name) mcpu_value_bool(MCPU_TEXT(name))
#define mcpu_text(name, to, size) mcpu_value_text(MCPU_TEXT(name), to, size)

// ---- What the device has: call these in setup() ---------------------------------------

#define MCPU_TOO_SMALL(limit) MCPU_TEXT(limit " is too small for this firmware")

MCPU_API void mcpu_set_name(mcpu_flash name, mcpu_flash version) { mcpu.name = name, mcpu.version = version; }

MCPU_API void mcpu_add_pin(int number, mcpu_flash name, uint8_t type, mcpu_flash text) {
  if (mcpu.pin_count == MCPU_PINS) {
    mcpu.wrong = MCPU_TOO_SMALL("MCPU_PINS");
    return;
  }
  struct mcpu_pin_entry *p = &mcpu.pins[mcpu.pin_count++];
  p->number = number, p->name = name, p->type = type, p->text = text;
  mcpu_pin_begin(number, type);
}

MCPU_API void mcpu_add_tool(mcpu_flash name, mcpu_flash text, void (*run)(void)) {
  if (mcpu.tool_count == MCPU_TOOLS) {
    mcpu.wrong = MCPU_TOO_SMALL("MCPU_TOOLS");
    return;
  }
  struct mcpu_tool_entry *t = &mcpu.tools[mcpu.tool_count++];
  t->name = name, t->text = text, t->run = run, t->first_arg = mcpu.arg_count;
}

MCPU_API void mcpu_add_arg(mcpu_flash name, uint8_t type, long min, long max, mcpu_flash text) {
  if (mcpu.arg_count == MCPU_ARGS || !mcpu.tool_count) {
    mcpu.wrong = mcpu.tool_count ? MCPU_TOO_SMALL("MCPU_ARGS") : MCPU_TEXT("an argument needs mcpu_tool before it");
    return;
  }
  struct mcpu_arg *a = &mcpu.args[mcpu.arg_count++];
  a->name = name, a->type = type, a->min = min, a->max = max, a->text = text;
  mcpu.tools[mcpu.tool_count - 1].args++;
}

MCPU_API struct mcpu_pin_entry *mcpu_pin_numbered(long number) {
  for (uint8_t i = 0; i < mcpu.pin_count; i++)
    if (mcpu.pins[i].number == number) return &mcpu.pins[i];
  return NULL;
}

// mcpu_sample measures a pin regularly and keeps the last samples.
MCPU_API void mcpu_sample(int pin, uint16_t every_ms, uint16_t keep) {
  struct mcpu_pin_entry *p = mcpu_pin_numbered(pin);
  if (!p || mcpu.sampled_count == MCPU_SAMPLED || keep > MCPU_SAMPLES - mcpu.value_count) {
    mcpu.wrong = p ? MCPU_TOO_SMALL("MCPU_SAMPLES") : MCPU_TEXT("mcpu_sample needs mcpu_pin before it");
    return;
  }
  struct mcpu_sampled *s = &mcpu.sampled[mcpu.sampled_count++];
  s->every = every_ms ? every_ms : 1, s->size = keep, s->first = mcpu.value_count, s->due = mcpu_millis();
  mcpu.value_count += keep;
  p->sampled = mcpu.sampled_count;
}

// mcpu_thresholds makes a sampled pin report samples below low and above high.
MCPU_API void mcpu_thresholds(int pin, int low, int high) {
  struct mcpu_pin_entry *p = mcpu_pin_numbered(pin);
  if (!p || !p->sampled) return;
  struct mcpu_sampled *s = &mcpu.sampled[p->sampled - 1];
  s->thresholds = true, s->low = low, s->high = high;
}

// mcpu_poll asks the gateway to call the last tool regularly and to record its numbers. The
// tool must only read, and have no arguments.
MCPU_API void mcpu_poll(uint16_t every_ms) {
  if (mcpu.tool_count) mcpu.tools[mcpu.tool_count - 1].poll_ms = every_ms;
}

#define mcpu_begin(name, version) mcpu_set_name(MCPU_TEXT(name), MCPU_TEXT(version))
#define mcpu_pin(number, name, type, text) mcpu_add_pin(number, MCPU_TEXT(name), type, MCPU_TEXT(text))
#define mcpu_tool(name, text, run) mcpu_add_tool(MCPU_TEXT(name), MCPU_TEXT(text), run)
// Arguments belong to the tool before them. All are required.
#define mcpu_arg_int(name, min, max, text) mcpu_add_arg(MCPU_TEXT(name), MCPU_INT, min, max, MCPU_TEXT(text))
#define mcpu_arg_number(name, min, max, text) mcpu_add_arg(MCPU_TEXT(name), MCPU_NUMBER, min, max, MCPU_TEXT(text))
#define mcpu_arg_bool(name, text) mcpu_add_arg(MCPU_TEXT(name), MCPU_BOOL, 0, 0, MCPU_TEXT(text))
#define mcpu_arg_text(name, longest, text) mcpu_add_arg(MCPU_TEXT(name), MCPU_STRING, 0, longest, MCPU_TEXT(text))

// ---- Samples --------------------------------------------------------------------------

MCPU_API void mcpu_take_sample(struct mcpu_sampled *s, int v) {
  if (s->size) {
    mcpu.values[s->first + s->next] = v;
    s->next = (uint16_t)((s->next + 1) % s->size);
    if (s->kept < s->size) s->kept++;
  }
  s->latest = v;
  if (v == MCPU_NO_VALUE) return;
  if (!s->count || v < s->min) s->min = v;
  if (!s->count || v > s->max) s->max = v;
  s->count++;
  s->average += ((float)v - s->average) / (float)s->count;
}

static void mcpu_take_samples(void) {
  for (uint8_t i = 0; i < mcpu.pin_count; i++) {
    if (!mcpu.pins[i].sampled) continue;
    struct mcpu_sampled *s = &mcpu.sampled[mcpu.pins[i].sampled - 1];
    uint32_t now = mcpu_millis();
    if ((int32_t)(now - s->due) < 0) continue;
    s->due += s->every;
    if ((int32_t)(now - s->due) >= 0) s->due = now + s->every; // late: do not catch up
    mcpu_take_sample(s, mcpu_pin_read(mcpu.pins[i].number, mcpu.pins[i].type));
  }
}

// ---- The protocol's own tools ---------------------------------------------------------

MCPU_API mcpu_flash mcpu_type_name(uint8_t type) {
  switch (type) {
  case MCPU_DIGITAL_OUTPUT: return MCPU_TEXT("digital_output");
  case MCPU_DIGITAL_INPUT: return MCPU_TEXT("digital_input");
  case MCPU_PWM_OUTPUT: return MCPU_TEXT("pwm_output");
  }
  return MCPU_TEXT("adc_input");
}

MCPU_API void mcpu_get_info(void) {
  mcpu_field_flash(MCPU_TEXT("device"), mcpu.name);
  mcpu_field_flash(MCPU_TEXT("version"), mcpu.version);
  mcpu_field_flash(MCPU_TEXT("platform"), MCPU_TEXT(MCPU_PLATFORM));
  mcpu_put_int("pin_count", mcpu.pin_count);
#ifdef MCPU_PROFILE
  mcpu_field_flash(MCPU_TEXT("memory_profile"), MCPU_TEXT(MCPU_PROFILE));
#endif
}

// mcpu_pin_of returns the pin that the request names, of one of two types. If there is none,
// it answers with an error.
MCPU_API struct mcpu_pin_entry *mcpu_pin_of(uint8_t type, uint8_t or_type) {
  long number;
  if (!mcpu_read_long(mcpu_member(mcpu.params, MCPU_TEXT("pin")), INT16_MIN, INT16_MAX, &number)) {
    mcpu_refuse("pin must be the number of a pin");
    return NULL;
  }
  struct mcpu_pin_entry *p = mcpu_pin_numbered(number);
  if (p && (p->type == type || p->type == or_type)) return p;
  mcpu_bad(MCPU_TEXT("pin must be of type "), mcpu_type_name(type));
  return NULL;
}

MCPU_API void mcpu_put_pin(struct mcpu_pin_entry *p) {
  mcpu_put_int("pin", p->number);
  mcpu_field_flash(MCPU_TEXT("name"), p->name);
}

MCPU_API void mcpu_gpio_write(void) {
  const char *value = mcpu_member(mcpu.params, MCPU_TEXT("value"));
  struct mcpu_pin_entry *p = mcpu_pin_of(MCPU_DIGITAL_OUTPUT, MCPU_DIGITAL_OUTPUT);
  if (!p) return;
  if (!value || (*value != 't' && *value != 'f')) {
    mcpu_refuse("value must be true or false");
    return;
  }
  if (!mcpu_pin_write(p->number, p->type, *value == 't')) mcpu_fail("The pin cannot be set");
  mcpu_put_pin(p);
  mcpu_put_bool("value", *value == 't');
}

MCPU_API void mcpu_gpio_read(void) {
  struct mcpu_pin_entry *p = mcpu_pin_of(MCPU_DIGITAL_INPUT, MCPU_DIGITAL_OUTPUT);
  if (!p) return;
  int value = mcpu_pin_read(p->number, p->type);
  if (value == MCPU_NO_VALUE) mcpu_fail("The pin cannot be read");
  mcpu_put_pin(p);
  mcpu_put_bool("value", value != 0);
}

MCPU_API void mcpu_pwm_write(void) {
  long duty;
  struct mcpu_pin_entry *p = mcpu_pin_of(MCPU_PWM_OUTPUT, MCPU_PWM_OUTPUT);
  if (!p) return;
  if (!mcpu_read_long(mcpu_member(mcpu.params, MCPU_TEXT("duty")), 0, 255, &duty)) {
    mcpu_refuse("duty must be from 0 to 255");
    return;
  }
  if (!mcpu_pin_write(p->number, p->type, (int)duty)) mcpu_fail("The pin cannot be set");
  mcpu_put_pin(p);
  mcpu_put_int("duty", duty);
}

MCPU_API void mcpu_adc_read(void) {
  struct mcpu_pin_entry *p = mcpu_pin_of(MCPU_ADC_INPUT, MCPU_ADC_INPUT);
  if (!p) return;
  int value = mcpu_pin_read(p->number, p->type);
  if (value == MCPU_NO_VALUE) mcpu_fail("The pin cannot be read");
  mcpu_put_pin(p);
  mcpu_put_int("value", value);
#ifdef MCPU_ADC_MV
  mcpu_put_int("mv", (long)value * (MCPU_ADC_MV) / (MCPU_ADC_MAX));
#endif
}

// mcpu_sampled_pin returns the pin of a get_pin tool, by number or name, or NULL with an error.
MCPU_API struct mcpu_pin_entry *mcpu_sampled_pin(void) {
  long number;
  const char *value = mcpu_member(mcpu.params, MCPU_TEXT("pin"));
  bool numbered = mcpu_read_long(value, INT16_MIN, INT16_MAX, &number);
  for (uint8_t i = 0; i < mcpu.pin_count; i++) {
    struct mcpu_pin_entry *p = &mcpu.pins[i];
    if (numbered ? p->number != number : !mcpu_is(value, p->name)) continue;
    mcpu.reading = p->sampled;
    if (p->sampled) return p;
    mcpu_refuse("the pin is not sampled");
    return NULL;
  }
  mcpu_refuse("Pin not found");
  return NULL;
}

MCPU_API void mcpu_get_pin_summary(void) {
  struct mcpu_pin_entry *p = mcpu_sampled_pin();
  if (!p) return;
  struct mcpu_sampled *s = &mcpu.sampled[p->sampled - 1];
  mcpu_put_pin(p);
  if (mcpu_field(MCPU_TEXT("latest"))) mcpu_value(s->latest);
  mcpu_put_int("min", s->min);
  mcpu_put_int("max", s->max);
  mcpu_put_number("avg", s->average, 2);
  mcpu_put_int("samples", (long)s->count);
}

// mcpu_get_pin_buffer sends the oldest samples first and keeps them. It counts all of them,
// also if the limit is lower.
MCPU_API void mcpu_get_pin_buffer(void) {
  struct mcpu_pin_entry *p = mcpu_sampled_pin();
  if (!p) return;
  struct mcpu_sampled *s = &mcpu.sampled[p->sampled - 1];
  long limit;
  if (!mcpu_read_long(mcpu_member(mcpu.params, MCPU_TEXT("limit")), 0, s->kept, &limit)) limit = s->kept;
  uint16_t at = s->kept < s->size ? 0 : s->next;
  mcpu_field_flash(MCPU_TEXT("pin"), p->name);
  mcpu_put_int("count", s->kept);
  mcpu_field(MCPU_TEXT("values"));
  for (long i = 0; i < limit; i++, at = (uint16_t)((at + 1) % s->size)) {
    mcpu_char(i ? ',' : '[');
    mcpu_value(mcpu.values[s->first + at]);
  }
  if (!limit) mcpu_char('[');
  mcpu_char(']');
}

MCPU_API void mcpu_get_pin_events(void) {
  struct mcpu_pin_entry *p = mcpu_sampled_pin();
  if (!p) return;
  struct mcpu_sampled *s = &mcpu.sampled[p->sampled - 1];
  bool known = s->thresholds && s->count && s->latest != MCPU_NO_VALUE;
  bool high = known && s->latest > s->high, low = known && s->latest < s->low;
  mcpu_field_flash(MCPU_TEXT("pin"), p->name);
  mcpu_field(MCPU_TEXT("events"));
  mcpu_char('[');
  if (high || low) {
    mcpu_json(high ? MCPU_TEXT("{'type':'threshold_high','value':") : MCPU_TEXT("{'type':'threshold_low','value':"));
    mcpu_long(s->latest);
    MCPU_JSON(",'threshold':");
    mcpu_long(high ? s->high : s->low);
    mcpu_char('}');
  }
  mcpu_char(']');
}

// ---- The list -------------------------------------------------------------------------

MCPU_API bool mcpu_has(uint8_t type) {
  for (uint8_t i = 0; i < mcpu.pin_count; i++)
    if (mcpu.pins[i].type == type) return true;
#ifdef MCPU_PROFILE
  return true;
#else
  return false;
#endif
}

MCPU_API void mcpu_list_builtins(void) {
#define MCPU_PIN_SCHEMA(more, required) \
  "'inputSchema':{'type':'object','properties':{'pin':{'type':'integer'}" more "},'required':['pin'" required "]}},"
  if (mcpu_has(MCPU_DIGITAL_OUTPUT))
    MCPU_JSON("{'name':'gpio_write','description':'Set a digital output'," MCPU_PIN_SCHEMA(",'value':{'type':'boolean'}", ",'value'"));
  if (mcpu_has(MCPU_DIGITAL_OUTPUT) || mcpu_has(MCPU_DIGITAL_INPUT))
    MCPU_JSON("{'name':'gpio_read','description':'Read a digital pin'," MCPU_PIN_SCHEMA("", ""));
  if (mcpu_has(MCPU_PWM_OUTPUT))
    MCPU_JSON("{'name':'pwm_write','description':'Set the duty of a PWM output'," MCPU_PIN_SCHEMA(
        ",'duty':{'type':'integer','minimum':0,'maximum':255}", ",'duty'"));
  if (mcpu_has(MCPU_ADC_INPUT)) MCPU_JSON("{'name':'adc_read','description':'Measure an analog input'," MCPU_PIN_SCHEMA("", ""));
  if (mcpu.sampled_count) {
    MCPU_JSON("{'name':'get_pin_summary','description':'Minimum, maximum and average of a pin'," MCPU_PIN_SCHEMA("", ""));
    MCPU_JSON("{'name':'get_pin_buffer','description':'The samples of a pin, the oldest first'," MCPU_PIN_SCHEMA(
        ",'limit':{'type':'integer'}", ""));
    MCPU_JSON("{'name':'get_pin_events','description':'Compare the latest sample of a pin with its thresholds'," MCPU_PIN_SCHEMA("", ""));
  }
  MCPU_JSON("{'name':'get_info','description':'Name and version','inputSchema':{'type':'object','properties':{}}}");
}

MCPU_API void mcpu_list_arg(struct mcpu_arg *a) {
  mcpu_quoted(a->name);
  switch (a->type) {
  case MCPU_INT: MCPU_JSON(":{'type':'integer'"); break;
  case MCPU_NUMBER: MCPU_JSON(":{'type':'number'"); break;
  case MCPU_BOOL: MCPU_JSON(":{'type':'boolean'"); break;
  case MCPU_STRING:
    MCPU_JSON(":{'type':'string','maxLength':");
    mcpu_long(a->max);
    break;
  }
  if (a->type == MCPU_INT || a->type == MCPU_NUMBER) {
    MCPU_JSON(",'minimum':");
    mcpu_long(a->min);
    MCPU_JSON(",'maximum':");
    mcpu_long(a->max);
  }
  MCPU_JSON(",'description':");
  mcpu_quoted(a->text);
  mcpu_char('}');
}

MCPU_API void mcpu_list_tool(struct mcpu_tool_entry *t) {
  MCPU_JSON(",{'name':");
  mcpu_quoted(t->name);
  MCPU_JSON(",'description':");
  mcpu_quoted(t->text);
  MCPU_JSON(",'inputSchema':{'type':'object','properties':{");
  for (uint8_t i = 0; i < t->args; i++) {
    if (i) mcpu_char(',');
    mcpu_list_arg(&mcpu.args[t->first_arg + i]);
  }
  MCPU_JSON("},'required':[");
  for (uint8_t i = 0; i < t->args; i++) {
    if (i) mcpu_char(',');
    mcpu_quoted(mcpu.args[t->first_arg + i].name);
  }
  MCPU_JSON("],'additionalProperties':false}");
  if (t->poll_ms) {
    MCPU_JSON(",'polling':{'enabled':true,'interval_ms':");
    mcpu_long(t->poll_ms);
    mcpu_char('}');
  }
  mcpu_char('}');
}

MCPU_API void mcpu_list_pin(struct mcpu_pin_entry *p) {
  MCPU_JSON("{'pin':");
  mcpu_long(p->number);
  MCPU_JSON(",'name':");
  mcpu_quoted(p->name);
  MCPU_JSON(",'type':");
  mcpu_quoted(mcpu_type_name(p->type));
  MCPU_JSON(",'description':");
  mcpu_quoted(p->text);
  if (p->sampled) {
    struct mcpu_sampled *s = &mcpu.sampled[p->sampled - 1];
    MCPU_JSON(",'capabilities':{'summary':true,'buffer':");
    mcpu_json(s->size ? MCPU_TEXT("true") : MCPU_TEXT("false"));
    MCPU_JSON(",'events':");
    mcpu_json(s->thresholds ? MCPU_TEXT("true") : MCPU_TEXT("false"));
    MCPU_JSON("},'sampling':{'interval_ms':");
    mcpu_long(s->every);
    MCPU_JSON(",'buffer_size':");
    mcpu_long(s->size);
    mcpu_char('}');
  }
  mcpu_char('}');
}

MCPU_API void mcpu_list_tools(void) {
  mcpu_field_flash(MCPU_TEXT("device"), mcpu.name);
  mcpu_field_flash(MCPU_TEXT("version"), mcpu.version);
  mcpu_field(MCPU_TEXT("tools"));
  mcpu_char('[');
  mcpu_list_builtins();
  for (uint8_t i = 0; i < mcpu.tool_count; i++) mcpu_list_tool(&mcpu.tools[i]);
  mcpu_char(']');
  mcpu_field(MCPU_TEXT("pins"));
  mcpu_char('[');
  for (uint8_t i = 0; i < mcpu.pin_count; i++) {
    if (i) mcpu_char(',');
    mcpu_list_pin(&mcpu.pins[i]);
  }
  mcpu_char(']');
}

// ---- Requests -------------------------------------------------------------------------

// mcpu_check_arg reports whether an argument fits, or answers with an error.
MCPU_API bool mcpu_check_arg(struct mcpu_arg *a) {
  const char *p = mcpu_member(mcpu.params, a->name);
  long n;
  switch (a->type) {
  case MCPU_INT:
    if (mcpu_read_long(p, a->min, a->max, &n)) return true;
    mcpu_error_begin(-32602);
    mcpu_error_text(a->name);
    mcpu_error_text(MCPU_TEXT(" must be an integer from "));
    mcpu_long(a->min);
    mcpu_error_text(MCPU_TEXT(" to "));
    mcpu_long(a->max);
    mcpu_char('"');
    return false;
  case MCPU_NUMBER:
    if (p && (*p == '-' || mcpu_digit(*p)) && strtod(p, NULL) >= a->min && strtod(p, NULL) <= a->max) return true;
    mcpu_bad(a->name, MCPU_TEXT(" must be a number in its range"));
    return false;
  case MCPU_BOOL:
    if (p && (*p == 't' || *p == 'f')) return true;
    mcpu_bad(a->name, MCPU_TEXT(" must be true or false"));
    return false;
  }
  if (p && *p == '"' && mcpu_skip_string(p) - p - 2 <= a->max) return true;
  mcpu_bad(a->name, MCPU_TEXT(" must be a text that is not too long"));
  return false;
}

MCPU_API bool mcpu_run_tool(const char *method) {
  for (uint8_t i = 0; i < mcpu.tool_count; i++) {
    struct mcpu_tool_entry *t = &mcpu.tools[i];
    if (!mcpu_is(method, t->name)) continue;
    for (uint8_t k = 0; k < t->args; k++)
      if (!mcpu_check_arg(&mcpu.args[t->first_arg + k])) return true;
    t->run();
    return true;
  }
  return false;
}

MCPU_API void mcpu_run(const char *method) {
  if (mcpu.wrong) mcpu_error(-32602, mcpu.wrong);
  else if (mcpu_is(method, MCPU_TEXT("get_info"))) mcpu_get_info();
  else if (mcpu_is(method, MCPU_TEXT("list_tools"))) mcpu_list_tools();
  else if (mcpu_is(method, MCPU_TEXT("gpio_write"))) mcpu_gpio_write();
  else if (mcpu_is(method, MCPU_TEXT("gpio_read"))) mcpu_gpio_read();
  else if (mcpu_is(method, MCPU_TEXT("pwm_write"))) mcpu_pwm_write();
  else if (mcpu_is(method, MCPU_TEXT("adc_read"))) mcpu_adc_read();
  else if (mcpu_is(method, MCPU_TEXT("get_pin_summary"))) mcpu_get_pin_summary();
  else if (mcpu_is(method, MCPU_TEXT("get_pin_buffer"))) mcpu_get_pin_buffer();
  else if (mcpu_is(method, MCPU_TEXT("get_pin_events"))) mcpu_get_pin_events();
  else if (!mcpu_run_tool(method)) mcpu_error(-32601, MCPU_TEXT("Method not found"));
}

// mcpu_answer answers a line. A request without an ID is ignored, and not executed: nobody
// would hear of an error.
MCPU_API void mcpu_answer(const char *line, const char *end, bool too_long) {
  mcpu.answer = MCPU_NOTHING;
  mcpu.id = mcpu_member(line, MCPU_TEXT("id"));
  if (mcpu.id && *mcpu.id != '"' && *mcpu.id != '-' && !mcpu_digit(*mcpu.id)) mcpu.id = NULL;
  if (too_long) {
    mcpu_error(-32600, MCPU_TEXT("The request is too long"));
  } else if (mcpu_skip(line, MCPU_DEPTH) != end) {
    mcpu.id = NULL;
    mcpu_error(-32700, MCPU_TEXT("Parse error"));
  } else if (!mcpu_is(mcpu_member(line, MCPU_TEXT("jsonrpc")), MCPU_TEXT("2.0"))) {
    mcpu.id = NULL;
    mcpu_error(-32600, MCPU_TEXT("Invalid request"));
  } else if (!mcpu.id) {
    mcpu.answer = MCPU_IDLE;
    return;
  } else {
    const char *method = mcpu_member(line, MCPU_TEXT("method"));
    mcpu.params = mcpu_member(line, MCPU_TEXT("params"));
    if (method && *method == '"') mcpu_run(method);
    else mcpu_error(-32600, MCPU_TEXT("Missing method"));
  }
  if (mcpu.answer == MCPU_NOTHING) MCPU_JSON("{'result':{");
  mcpu_char('}');
  mcpu_end_id();
}

// mcpu_forget drops what has arrived: the other side is gone.
MCPU_API void mcpu_forget(void) { mcpu.received = 0, mcpu.too_long = mcpu.stray = false; }

// mcpu_strayed reports whether a line did not begin with a brace, and drops what came after
// it. On a serial port that is noise. On TCP, close the connection: any web page can make a
// browser send a request to the device, in lines below those of HTTP.
MCPU_API bool mcpu_strayed(void) {
  if (!mcpu.stray) return false;
  mcpu_forget();
  return true;
}

MCPU_API void mcpu_step(void) {
  mcpu_take_samples();
  mcpu_fill();
  char *newline = (char *)memchr(mcpu.in, '\n', mcpu.received);
  size_t length = newline ? (size_t)(newline - mcpu.in) : mcpu.received;
  if (length >= MCPU_LINE) { // keep the beginning, which has the ID
    mcpu.too_long = true;
    memmove(mcpu.in + 64, mcpu.in + length, mcpu.received - length);
    mcpu.received -= (uint16_t)(length - 64);
    if (newline) newline = mcpu.in + 64;
  }
  if (!newline) return;
  char *end = mcpu.too_long ? mcpu.in + 64 : newline;
  while (end > mcpu.in && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
  *end = 0;
  const char *line = mcpu_space(mcpu.in);
  if (line != end && *line != '{') mcpu.stray = true;
  if (line != end) mcpu_answer(line, end, mcpu.too_long);
  mcpu.too_long = false;
  mcpu.received -= (uint16_t)(newline + 1 - mcpu.in);
  memmove(mcpu.in, newline + 1, mcpu.received);
}

#ifdef ARDUINO

// mcpu_loop_tcp is mcpu_loop for a TCP client, such as a WiFiClient.
template <class Client> static void mcpu_loop_tcp(Client &client) {
  mcpu_loop(client);
  if (mcpu_strayed()) client.stop();
}

#endif

#endif
