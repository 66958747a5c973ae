//go:build ignore

// Firmware of a board for tests: an ATmega328P at 16 MHz that speaks MCP/U as
// the Arduino library does on an AVR. There is no heap.
//
// Build options:
//   -DBAUD=9600    speed of the line; the default is 115200
//   -DFRAGMENTS    the receive loop of library 1.1 and later: the bytes that have
//                  arrived when no byte is waiting are parsed as a request
//   -DKILN_MS=1000 three tools for a long job; a second of the job lasts so long
//   -DLARGE        eight pins, eight tools and long descriptions
//   -DBOOT='"..."' text that is printed at boot

#define F_CPU 16000000UL

#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/pgmspace.h>
#include <avr/sleep.h>
#include <avr/wdt.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <util/atomic.h>

#ifndef BAUD
#define BAUD 115200
#endif
#ifndef BOOT
#define BOOT "\r\nMCP-U ready\r\n"
#endif

#define DEVICE "rig-uno"
#define VERSION "1.2.0"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef const __flash char *flash_text;

// TEXT is a string that stays in flash.
#define TEXT(s) ({ static const __flash char text_[] = s; (flash_text)text_; })

// ---- Time -------------------------------------------------------------------

static volatile uint32_t ticks;

ISR(TIMER0_COMPA_vect) { ticks++; }

static uint32_t millis(void) {
  uint32_t now;
  ATOMIC_BLOCK(ATOMIC_RESTORESTATE) { now = ticks; }
  return now;
}

static void start_clock(void) {
  TCCR0A = _BV(WGM01);
  OCR0A = F_CPU / 64 / 1000 - 1;
  TCCR0B = _BV(CS01) | _BV(CS00);
  TIMSK0 = _BV(OCIE0A);
}

// ---- The line ---------------------------------------------------------------

// Two ring buffers, each as small as the Arduino core's. A byte that arrives while
// the first is full is lost. Sending blocks while the second is full.
static volatile struct ring {
  uint8_t bytes[64];
  uint8_t head, tail;
} received, sending;

static uint8_t after(uint8_t i) { return (i + 1) % sizeof received.bytes; }

ISR(USART_RX_vect) {
  uint8_t c = UDR0;
  if (after(received.head) == received.tail) return;
  received.bytes[received.head] = c;
  received.head = after(received.head);
}

ISR(USART_UDRE_vect) {
  if (sending.head == sending.tail) {
    UCSR0B &= ~_BV(UDRIE0);
    return;
  }
  UDR0 = sending.bytes[sending.tail];
  sending.tail = after(sending.tail);
}

static bool take_byte(char *c) {
  if (received.tail == received.head) return false;
  *c = received.bytes[received.tail];
  received.tail = after(received.tail);
  return true;
}

static void put(char c) {
  while (after(sending.head) == sending.tail) {
  }
  sending.bytes[sending.head] = c;
  sending.head = after(sending.head);
  UCSR0B |= _BV(UDRIE0);
}

static void flush(void) {
  while (sending.head != sending.tail) {
  }
}

static void start_line(void) {
  UCSR0A = _BV(U2X0); // before UBRR0: the emulator reads the speed when that is set
  UBRR0 = (F_CPU + 4UL * BAUD) / (8UL * BAUD) - 1;
  UCSR0C = _BV(UCSZ01) | _BV(UCSZ00);
  UCSR0B = _BV(RXEN0) | _BV(TXEN0) | _BV(RXCIE0);
}

// say sends a text. Apostrophes become quotes, which keeps the source readable.
static void say(flash_text s) {
  for (char c; (c = *s); s++) put(c == '\'' ? '"' : c);
}
#define SAY(s) say(TEXT(s))

static void say_number(int32_t n) {
  char digits[10];
  uint8_t i = 0;
  uint32_t rest = n < 0 ? -(uint32_t)n : (uint32_t)n;
  do digits[i++] = '0' + rest % 10; while (rest /= 10);
  if (n < 0) put('-');
  while (i) put(digits[--i]);
}

// say_ratio sends a quotient with at most two decimals.
static void say_ratio(uint32_t sum, uint16_t n) {
  say_number(sum / n);
  uint8_t hundredths = sum % n * 100 / n;
  if (!hundredths) return;
  put('.');
  put('0' + hundredths / 10);
  if (hundredths % 10) put('0' + hundredths % 10);
}

static void say_bool(bool b) {
  if (b) SAY("true");
  else SAY("false");
}

// ---- JSON: a value is a pointer to its first character ----------------------

#define MAX_DEPTH 10

static const char *skip_space(const char *p) {
  while (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n') p++;
  return p;
}

static const char *skip_string(const char *p) {
  while (*++p != '"') {
    if (*p == '\\') p++;
    if (!*p) return NULL;
  }
  return p + 1;
}

static const char *skip_word(const char *p, flash_text word) {
  uint8_t n = strlen_P(word);
  return strncmp_P(p, word, n) ? NULL : p + n;
}

static const char *skip_number(const char *p) {
  if (*p == '-') p++;
  if (*p < '0' || *p > '9') return NULL;
  while ((*p >= '0' && *p <= '9') || *p == '.' || *p == 'e' || *p == 'E' || *p == '+' || *p == '-') p++;
  return p;
}

static const char *skip_value(const char *p, uint8_t depth);

// skip_members skips the members of an object or array and the closing bracket.
static const char *skip_members(const char *p, bool named, uint8_t depth) {
  char close = named ? '}' : ']';
  if (depth == MAX_DEPTH) return NULL;
  p = skip_space(p + 1);
  if (*p == close) return p + 1;
  for (;; p++) {
    p = skip_space(p);
    if (named) {
      if (*p != '"' || !(p = skip_string(p))) return NULL;
      p = skip_space(p);
      if (*p++ != ':') return NULL;
    }
    if (!(p = skip_value(p, depth + 1))) return NULL;
    p = skip_space(p);
    if (*p == close) return p + 1;
    if (*p != ',') return NULL;
  }
}

// skip_value returns a pointer behind a value, or NULL if it is malformed.
static const char *skip_value(const char *p, uint8_t depth) {
  p = skip_space(p);
  switch (*p) {
  case '{': return skip_members(p, true, depth);
  case '[': return skip_members(p, false, depth);
  case '"': return skip_string(p);
  case 't': return skip_word(p, TEXT("true"));
  case 'f': return skip_word(p, TEXT("false"));
  case 'n': return skip_word(p, TEXT("null"));
  }
  return skip_number(p);
}

static bool string_is(const char *value, flash_text want) {
  uint8_t n = strlen_P(want);
  return value && *value == '"' && !strncmp_P(value + 1, want, n) && value[n + 1] == '"';
}

// field returns a member of a well-formed object, or NULL.
static const char *field(const char *object, flash_text name) {
  if (!object || *object != '{') return NULL;
  const char *p = skip_space(object + 1);
  while (*p != '}') {
    const char *key = p;
    p = skip_space(skip_string(p)) + 1; // the colon
    p = skip_space(p);
    if (string_is(key, name)) return p;
    p = skip_space(skip_value(p, 0));
    if (*p == ',') p = skip_space(p + 1);
  }
  return NULL;
}

// int_value reads an integer that fits an int, which has 16 bits here.
static bool int_value(const char *p, int16_t *out) {
  if (!p) return false;
  bool negative = *p == '-';
  if (negative) p++;
  if (*p < '0' || *p > '9') return false;
  int32_t n = 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    n = n * 10 + (*p - '0');
    if (n > 32768) return false;
  }
  if (*p == '.' || *p == 'e' || *p == 'E') return false;
  if (negative) n = -n;
  if (n > INT16_MAX) return false;
  *out = n;
  return true;
}

static bool bool_value(const char *p, bool *out) {
  *out = p && *p == 't';
  return p && (*p == 't' || *p == 'f');
}

// ---- Answers ----------------------------------------------------------------

static int16_t request_id;
static const char *params; // of the request, or NULL

static void refuse_as(int16_t id, int16_t code, flash_text message) {
  SAY("{'jsonrpc':'2.0','id':");
  say_number(id);
  SAY(",'error':{'code':");
  say_number(code);
  SAY(",'message':'");
  say(message);
  SAY("'}}\r\n");
}

static void bad_params(flash_text message) { refuse_as(request_id, -32602, message); }

#define RESULT(s) SAY("{'result':" s)

static void end_result(void) {
  SAY(",'jsonrpc':'2.0','id':");
  say_number(request_id);
  SAY("}\r\n");
}

static bool int_param(flash_text name, int16_t *out) { return int_value(field(params, name), out); }

// ---- Pins -------------------------------------------------------------------

enum type { DIGITAL_OUTPUT, DIGITAL_INPUT, PWM_OUTPUT, ADC_INPUT };

struct pin {
  uint8_t number; // as Arduino counts: 0 is PD0, 8 is PB0, 14 is PC0
  uint8_t type;
  char name[8];
  char text[48];
};

static const __flash struct pin pins[] = {
#ifdef LARGE
    {13, DIGITAL_OUTPUT, "led", "The LED next to the USB socket"},
    {9, PWM_OUTPUT, "fan", "Fan of the case, 0 to 255, turns from 60 on"},
    {14, ADC_INPUT, "light", "Light in the room, brighter is more"},
    {2, DIGITAL_INPUT, "button", "Button on the front, high while it is pressed"},
    {4, DIGITAL_OUTPUT, "relay1", "Relay 1, the pump of the left tank"},
    {5, DIGITAL_OUTPUT, "relay2", "Relay 2, the pump of the right tank"},
    {6, DIGITAL_OUTPUT, "relay3", "Relay 3, the lamp above the tanks"},
    {7, DIGITAL_OUTPUT, "relay4", "Relay 4, not connected to anything"},
#else
    {13, DIGITAL_OUTPUT, "led", "On-board LED"},
    {9, PWM_OUTPUT, "fan", "Fan, 0 to 255"},
    {14, ADC_INPUT, "light", "Light, brighter is more"},
    {2, DIGITAL_INPUT, "button", "Button"},
#endif
};

typedef const __flash struct pin *pin_ref;

static volatile uint8_t *output_register(uint8_t number) { return number < 8 ? &PORTD : number < 14 ? &PORTB : &PORTC; }
static volatile uint8_t *direction_register(uint8_t number) { return output_register(number) - 1; }
static volatile uint8_t *input_register(uint8_t number) { return output_register(number) - 2; }
static uint8_t bit_of(uint8_t number) { return _BV(number < 8 ? number : number < 14 ? number - 8 : number - 14); }

// pin_numbered uses eight bits of a number, as the library does: 258 is 2.
static pin_ref pin_numbered(int16_t number) {
  for (uint8_t i = 0; i < COUNT(pins); i++)
    if (pins[i].number == (uint8_t)number) return &pins[i];
  return NULL;
}

static void write_pin(uint8_t number, bool high) {
  if (high) *output_register(number) |= bit_of(number);
  else *output_register(number) &= ~bit_of(number);
}

static bool read_pin(uint8_t number) { return *input_register(number) & bit_of(number); }

// write_duty sets the PWM. Like the library it accepts any number.
static void write_duty(int16_t duty) {
  OCR1A = duty;
  if (duty) TCCR1A |= _BV(COM1A1);
  else TCCR1A &= ~_BV(COM1A1); // otherwise a spike would remain
}

static uint16_t measure(uint8_t number) {
  ADMUX = _BV(REFS0) | (number - 14);
  ADCSRA |= _BV(ADSC);
  loop_until_bit_is_clear(ADCSRA, ADSC);
  return ADC;
}

// begin_pins drives the outputs low.
static void begin_pins(void) {
  for (uint8_t i = 0; i < COUNT(pins); i++) {
    if (pins[i].type != DIGITAL_OUTPUT && pins[i].type != PWM_OUTPUT) continue;
    write_pin(pins[i].number, false);
    *direction_register(pins[i].number) |= bit_of(pins[i].number);
  }
  TCCR1A = _BV(WGM10); // fast PWM, 8 bits, 977 Hz
  TCCR1B = _BV(WGM12) | _BV(CS11) | _BV(CS10);
  ADCSRA = _BV(ADEN) | _BV(ADPS2) | _BV(ADPS1) | _BV(ADPS0);
}

// ---- Samples of the one sampled pin -----------------------------------------

#define SAMPLED_PIN 14
#define SAMPLE_MS 100
#define KEPT_SAMPLES 20
#define LOW_THRESHOLD 100
#define HIGH_THRESHOLD 900

static struct {
  uint32_t due;
  uint16_t ring[KEPT_SAMPLES];
  uint8_t kept, next;
  uint16_t latest, min, max;
  uint16_t count; // stays at its maximum while the sum grows, as in the library
  uint32_t sum;
} samples;

static void sample(void) {
  if ((int32_t)(millis() - samples.due) < 0) return;
  samples.due = millis() + SAMPLE_MS;
  uint16_t v = measure(SAMPLED_PIN);
  samples.ring[samples.next] = v;
  samples.next = (samples.next + 1) % KEPT_SAMPLES;
  if (samples.kept < KEPT_SAMPLES) samples.kept++;
  if (!samples.count || v < samples.min) samples.min = v;
  if (v > samples.max) samples.max = v;
  if (samples.count < UINT16_MAX) samples.count++;
  samples.sum += v;
  samples.latest = v;
}

// ---- Built-in methods -------------------------------------------------------

static void get_info(void) {
  RESULT("{'device':'" DEVICE "','version':'" VERSION "','platform':'arduino','pin_count':");
  say_number(COUNT(pins));
  SAY(",'memory_profile':'low'}");
  end_result();
}

static void say_pin(pin_ref p) {
  RESULT("{'pin':");
  say_number(p->number);
  SAY(",'name':'");
  say(p->name);
  SAY("',");
}

static void gpio_write(void) {
  int16_t number;
  bool value;
  if (!int_param(TEXT("pin"), &number) || !bool_value(field(params, TEXT("value")), &value)) {
    bad_params(TEXT("Bad params"));
    return;
  }
  pin_ref p = pin_numbered(number);
  if (!p || p->type != DIGITAL_OUTPUT) {
    bad_params(TEXT("Wrong pin type"));
    return;
  }
  write_pin(p->number, value);
  say_pin(p);
  SAY("'value':");
  say_bool(value);
  SAY("}");
  end_result();
}

static void gpio_read(void) {
  int16_t number;
  if (!int_param(TEXT("pin"), &number)) {
    bad_params(TEXT("Bad params"));
    return;
  }
  pin_ref p = pin_numbered(number);
  if (!p || (p->type != DIGITAL_OUTPUT && p->type != DIGITAL_INPUT)) {
    bad_params(TEXT("Wrong pin type"));
    return;
  }
  say_pin(p);
  SAY("'value':");
  say_bool(read_pin(p->number));
  SAY("}");
  end_result();
}

static void pwm_write(void) {
  int16_t number, duty;
  if (!int_param(TEXT("pin"), &number) || !int_param(TEXT("duty"), &duty)) {
    bad_params(TEXT("Bad params"));
    return;
  }
  pin_ref p = pin_numbered(number);
  if (!p || p->type != PWM_OUTPUT) {
    bad_params(TEXT("Wrong pin type"));
    return;
  }
  write_duty(duty);
  say_pin(p);
  SAY("'duty':");
  say_number(duty);
  SAY("}");
  end_result();
}

// adc_read computes millivolts for a reference of 3.3 V, as the library does. On
// this board it is 5 V.
static void adc_read(void) {
  int16_t number;
  if (!int_param(TEXT("pin"), &number)) {
    bad_params(TEXT("Bad params"));
    return;
  }
  pin_ref p = pin_numbered(number);
  if (!p || p->type != ADC_INPUT) {
    bad_params(TEXT("Wrong pin type"));
    return;
  }
  uint16_t raw = measure(p->number);
  say_pin(p);
  SAY("'value':");
  say_number(raw);
  SAY(",'mv':");
  say_number((int32_t)raw * 3300 / 1023);
  SAY("}");
  end_result();
}

// named_pin finds the pin of a get_pin method, by number or by name.
static pin_ref named_pin(void) {
  const char *value = field(params, TEXT("pin"));
  int16_t number;
  if (int_value(value, &number)) return pin_numbered(number);
  for (uint8_t i = 0; i < COUNT(pins); i++)
    if (string_is(value, pins[i].name)) return &pins[i];
  return NULL;
}

static void get_pin_summary(void) {
  pin_ref p = named_pin();
  if (!p) {
    bad_params(TEXT("Pin not found"));
    return;
  }
  if (p->number != SAMPLED_PIN) {
    bad_params(TEXT("Summary not enabled for this pin"));
    return;
  }
  say_pin(p);
  SAY("'latest':");
  say_number(samples.latest);
  SAY(",'min':");
  say_number(samples.min);
  SAY(",'max':");
  say_number(samples.max);
  SAY(",'avg':");
  say_ratio(samples.sum, samples.count ? samples.count : 1);
  SAY(",'samples':");
  say_number(samples.count);
  SAY("}");
  end_result();
}

static void say_pin_name(pin_ref p) {
  RESULT("{'pin':'");
  say(p->name);
  SAY("',");
}

// get_pin_buffer returns the oldest samples and keeps them. Like the library it counts all
// of them, also if the limit is lower.
static void get_pin_buffer(void) {
  pin_ref p = named_pin();
  if (!p) {
    bad_params(TEXT("Pin not found"));
    return;
  }
  say_pin_name(p);
  if (p->number != SAMPLED_PIN) {
    SAY("'buffer_available':false,'reason':'Buffer not enabled for this pin'}");
    end_result();
    return;
  }
  int16_t limit;
  if (!int_param(TEXT("limit"), &limit) || limit < 0) limit = 10;
  if (limit > samples.kept) limit = samples.kept;
  SAY("'count':");
  say_number(samples.kept);
  SAY(",'values':[");
  uint8_t oldest = (samples.next + KEPT_SAMPLES - samples.kept) % KEPT_SAMPLES;
  for (uint8_t i = 0; i < limit; i++) {
    if (i) SAY(",");
    say_number(samples.ring[(oldest + i) % KEPT_SAMPLES]);
  }
  SAY("]}");
  end_result();
}

// get_pin_events compares the latest sample with the thresholds on each request.
static void get_pin_events(void) {
  pin_ref p = named_pin();
  if (!p) {
    bad_params(TEXT("Pin not found"));
    return;
  }
  say_pin_name(p);
  SAY("'events':[");
  bool high = samples.latest > HIGH_THRESHOLD, low = samples.latest < LOW_THRESHOLD;
  if (p->number == SAMPLED_PIN && samples.count && (high || low)) {
    SAY("{'type':'threshold_");
    if (high) SAY("high");
    else SAY("low");
    SAY("','value':");
    say_number(samples.latest);
    SAY(",'threshold':");
    say_number(high ? HIGH_THRESHOLD : LOW_THRESHOLD);
    SAY("}");
  }
  SAY("]}");
  end_result();
}

// ---- Custom tools -----------------------------------------------------------

static uint8_t reset_cause; // MCUSR at boot

static void uptime(void) {
  RESULT("{'ms':");
  say_number(millis());
  SAY(",'reset':'");
  if (reset_cause & _BV(WDRF)) SAY("watchdog");
  else if (reset_cause & _BV(EXTRF)) SAY("external");
  else SAY("power");
  SAY("'}");
  end_result();
}

// reboot sends its answer and lets the watchdog reset the board.
static void reboot(void) {
  RESULT("{'rebooting':true}");
  end_result();
  flush();
  wdt_enable(WDTO_15MS);
  for (;;) {
  }
}

#define KEPT_TOKENS 64
#define TALLY_IS_VALID 0x7A11F00DUL

// tally counts the executions of count. It survives a reset, so a request that is
// sent again after a reset is noticed.
static struct {
  uint32_t valid;
  uint32_t total;
  uint32_t repeats; // executions with a known token
  uint32_t tokens[KEPT_TOKENS];
  uint8_t runs[KEPT_TOKENS];
  uint8_t next;
} tally __attribute__((section(".noinit")));

static void begin_tally(void) {
  if (tally.valid == TALLY_IS_VALID) return;
  memset(&tally, 0, sizeof tally);
  tally.valid = TALLY_IS_VALID;
}

// fingerprint returns a hash of a text: FNV-1a, and never zero.
static uint32_t fingerprint(const char *from, const char *to) {
  uint32_t hash = 2166136261UL;
  for (; from < to; from++) hash = (hash ^ (uint8_t)*from) * 16777619UL;
  return hash ? hash : 1;
}

static uint8_t tally_token(uint32_t token) {
  tally.total++;
  for (uint8_t i = 0; i < KEPT_TOKENS; i++)
    if (tally.tokens[i] == token) {
      tally.repeats++;
      return ++tally.runs[i];
    }
  uint8_t i = tally.next;
  tally.next = (i + 1) % KEPT_TOKENS;
  tally.tokens[i] = token;
  return tally.runs[i] = 1;
}

static void count(void) {
  const char *token = field(params, TEXT("token"));
  if (!token || *token != '"') {
    bad_params(TEXT("Bad params"));
    return;
  }
  const char *end = skip_string(token);
  uint8_t runs = tally_token(fingerprint(token, end));
  RESULT("{'token':");
  for (const char *p = token; p < end; p++) put(*p);
  SAY(",'runs':");
  say_number(runs);
  SAY("}");
  end_result();
}

static void runs(void) {
  RESULT("{'total':");
  say_number(tally.total);
  SAY(",'repeats':");
  say_number(tally.repeats);
  SAY("}");
  end_result();
}

#ifdef KILN_MS
// The kiln is a long job: start_kiln begins it, the board goes on by itself, kiln_status says
// how far it is, and stop_kiln ends it. The LED is on while it fires. The number of starts
// survives a reset, the job does not: the status then has the job 0.
#define STARTS_ARE_VALID 0x5EED0F1AUL

static struct {
  uint32_t valid;
  uint32_t count;
} starts __attribute__((section(".noinit")));

static struct {
  uint32_t job;
  uint32_t begun;
  uint16_t seconds;
  enum { IDLE, FIRING, DONE, STOPPED } state;
} kiln;

static void begin_kiln(void) {
  if (starts.valid == STARTS_ARE_VALID) return;
  starts.valid = STARTS_ARE_VALID;
  starts.count = 0;
}

static uint32_t kiln_elapsed(void) { return (millis() - kiln.begun) / KILN_MS; }

static void fire(void) {
  if (kiln.state != FIRING || kiln_elapsed() < kiln.seconds) return;
  kiln.state = DONE;
  write_pin(13, false);
}

static void say_kiln(void) {
  fire();
  RESULT("{'job':");
  say_number(kiln.job);
  SAY(",'state':'");
  switch (kiln.state) {
  case IDLE: SAY("idle"); break;
  case FIRING: SAY("firing"); break;
  case DONE: SAY("done"); break;
  case STOPPED: SAY("stopped"); break;
  }
  SAY("','left':");
  say_number(kiln.state == FIRING ? kiln.seconds - kiln_elapsed() : 0);
  SAY(",'starts':");
  say_number(starts.count);
  SAY("}");
  end_result();
}

static void start_kiln(void) {
  int16_t seconds;
  fire();
  if (!int_param(TEXT("seconds"), &seconds) || seconds < 1) {
    bad_params(TEXT("Bad params"));
    return;
  }
  if (kiln.state == FIRING) {
    bad_params(TEXT("The kiln is firing"));
    return;
  }
  kiln.job = ++starts.count;
  kiln.begun = millis();
  kiln.seconds = seconds;
  kiln.state = FIRING;
  write_pin(13, true);
  say_kiln();
}

static void stop_kiln(void) {
  if (kiln.state == FIRING) {
    kiln.state = STOPPED;
    write_pin(13, false);
  }
  say_kiln();
}
#endif

#ifdef LARGE
static void nothing(void) {
  RESULT("{'ok':true}");
  end_result();
}
#endif

// ---- The list ---------------------------------------------------------------

struct tool {
  char name[16];
  char text[64];
  void (*run)(void);
};

static const __flash struct tool builtins[] = {
    {"gpio_write", "Set a digital output", gpio_write},
    {"gpio_read", "Read a digital pin", gpio_read},
    {"pwm_write", "Set a PWM duty", pwm_write},
    {"adc_read", "Read an analog pin", adc_read},
    {"get_info", "Tell about the device", get_info},
    {"get_pin_summary", "Tell min, max and average of a pin", get_pin_summary},
    {"get_pin_buffer", "Tell the samples of a pin", get_pin_buffer},
    {"get_pin_events", "Tell the threshold events of a pin", get_pin_events},
};

// The first tool asks to be polled.
#define POLL_MS 1000

static const __flash struct tool tools[] = {
    {"uptime", "Tell the time since boot and the cause of the last reset", uptime},
    {"reboot", "Answer, then reset the board", reboot},
    {"count", "Count an execution; params: token (any text, new each time)", count},
    {"runs", "Tell how often count was executed", runs},
#ifdef KILN_MS
    {"start_kiln", "Begin to fire; params: seconds", start_kiln},
    {"kiln_status", "Tell the state of the kiln", say_kiln},
    {"stop_kiln", "Stop firing", stop_kiln},
#endif
#ifdef LARGE
    {"feed", "Feed the fish; params: grams (1 to 9)", nothing},
    {"water_change", "Change a tenth of the water; the pumps are off meanwhile", nothing},
    {"lamp_program", "Choose a program; params: program (day, dusk, night or off)", nothing},
    {"calibrate", "Calibrate the light sensor; cover it before", nothing},
#endif
};

static void say_tool(const __flash struct tool *t) {
  SAY("{'name':'");
  say(t->name);
  SAY("','description':'");
  say(t->text);
  SAY("'");
}

static void say_type(uint8_t type) {
  switch (type) {
  case DIGITAL_OUTPUT: SAY("digital_output"); break;
  case DIGITAL_INPUT: SAY("digital_input"); break;
  case PWM_OUTPUT: SAY("pwm_output"); break;
  case ADC_INPUT: SAY("adc_input"); break;
  }
}

// list_tools sends no schema for built-in tools, an empty one for custom tools, and
// no capabilities for pins, as the library does on an AVR.
static void list_tools(void) {
  RESULT("{'device':'" DEVICE "','version':'" VERSION "','tools':[");
  for (uint8_t i = 0; i < COUNT(builtins); i++) {
    if (i) SAY(",");
    say_tool(&builtins[i]);
    SAY("}");
  }
  for (uint8_t i = 0; i < COUNT(tools); i++) {
    SAY(",");
    say_tool(&tools[i]);
    SAY(",'inputSchema':{'type':'object','required':[],'properties':{}}");
    if (i == 0) {
      SAY(",'polling':{'enabled':true,'interval_ms':");
      say_number(POLL_MS);
      SAY("}");
    }
    SAY("}");
  }
  SAY("],'pins':[");
  for (uint8_t i = 0; i < COUNT(pins); i++) {
    if (i) SAY(",");
    SAY("{'pin':");
    say_number(pins[i].number);
    SAY(",'name':'");
    say(pins[i].name);
    SAY("','type':'");
    say_type(pins[i].type);
    SAY("','description':'");
    say(pins[i].text);
    SAY("'}");
  }
  SAY("]}");
  end_result();
}

// ---- Requests ---------------------------------------------------------------

static bool run_if_named(const char *method, const __flash struct tool *t) {
  if (!string_is(method, t->name)) return false;
  t->run();
  return true;
}

static void run_method(const char *method) {
  if (string_is(method, TEXT("list_tools"))) {
    list_tools();
    return;
  }
  for (uint8_t i = 0; i < COUNT(builtins); i++)
    if (run_if_named(method, &builtins[i])) return;
  for (uint8_t i = 0; i < COUNT(tools); i++)
    if (run_if_named(method, &tools[i])) return;
  refuse_as(request_id, -32601, TEXT("Method not found"));
}

static void answer(const char *request) {
  if (!skip_value(request, 0)) {
    refuse_as(0, -32700, TEXT("Parse error"));
    return;
  }
  request = skip_space(request);
  if (!string_is(field(request, TEXT("jsonrpc")), TEXT("2.0"))) {
    refuse_as(0, -32600, TEXT("Invalid request"));
    return;
  }
  if (!int_value(field(request, TEXT("id")), &request_id)) return; // no answer, as the library does
  const char *method = field(request, TEXT("method"));
  if (!method || *method != '"') {
    refuse_as(request_id, -32600, TEXT("Missing method"));
    return;
  }
  params = field(request, TEXT("params"));
  run_method(method);
}

#define LINE_TIMEOUT_MS 1000

static char line[256];
static uint8_t line_length;

static void answer_line(void) {
  if (!line_length) return;
  line[line_length] = 0;
  line_length = 0;
  answer(line);
}

// receive moves bytes into the line. It answers the line at its end or when it is
// full.
static void receive(void) {
  static uint32_t last_byte;
  for (char c; take_byte(&c); last_byte = millis()) {
    if (c == '\n') answer_line();
    else if (c != '\r') line[line_length++] = c;
    if (line_length == sizeof line - 1) answer_line();
  }
#ifdef FRAGMENTS
  (void)last_byte;
  answer_line();
#else
  if (line_length && millis() - last_byte >= LINE_TIMEOUT_MS) answer_line();
#endif
}

// rest sleeps until a byte or a tick arrives.
static void rest(void) {
  cli();
  if (received.head != received.tail) {
    sei();
    return;
  }
  sleep_enable();
  sei(); // takes effect after the next instruction, so no byte is missed
  sleep_cpu();
  sleep_disable();
}

int main(void) {
  reset_cause = MCUSR;
  MCUSR = 0;
  wdt_disable();
  start_line();
  start_clock();
  begin_pins();
  begin_tally();
#ifdef KILN_MS
  begin_kiln();
#endif
  sei();
  SAY(BOOT);
  for (;;) {
    sample();
#ifdef KILN_MS
    fire();
#endif
    receive();
    rest();
  }
}
