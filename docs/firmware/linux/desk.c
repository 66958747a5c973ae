// A Linux board as a device, in plain C: the temperature of its processor, sampled, and an
// LED. Build and try it:
//
//   cc -std=c99 -O2 -I.. -o desk desk.c
//   echo '{"jsonrpc":"2.0","id":1,"method":"get_info"}' | ./desk
//   ./desk 4242 &
//   ferrule up --tcp desk=127.0.0.1:4242
//
// It uses two files: /sys/class/thermal/thermal_zone0/temp is the thermometer, and
// /sys/class/leds/led0/brightness the LED, which only root may write. Without one of them,
// calls fail and `ferrule check` says so. To try it without them, make them in a FOLDER:
//
//   mkdir -p try/class/thermal/thermal_zone0 try/class/leds/led0
//   echo 42500 > try/class/thermal/thermal_zone0/temp
//   FOLDER=try ./desk 4242 &
#define _POSIX_C_SOURCE 200809L
#define MCPU_HAS_PINS
#include "mcpu_posix.h"

#define TEMPERATURE "class/thermal/thermal_zone0/temp" // thousandths of a degree
#define LED "class/leds/led0/brightness"

enum { CPU = 1, LAMP = 2 }; // pin numbers are yours to choose

static FILE *open_file(const char *name, const char *mode) {
  char path[256];
  const char *folder = getenv("FOLDER");
  snprintf(path, sizeof path, "%s/%s", folder ? folder : "/sys", name);
  return fopen(path, mode);
}

static bool read_number(const char *name, long *value) {
  FILE *f = open_file(name, "r");
  bool ok = f && fscanf(f, "%ld", value) == 1;
  if (f) fclose(f);
  return ok;
}

static bool write_number(const char *name, long value) {
  FILE *f = open_file(name, "w");
  bool ok = f && fprintf(f, "%ld\n", value) > 0;
  if (f && fclose(f)) ok = false;
  return ok;
}

// The three functions that mcpu.h needs for pins.
static void mcpu_pin_begin(int pin, int type) {
  if (type == MCPU_DIGITAL_OUTPUT) mcpu_pin_write(pin, type, 0);
}
static bool mcpu_pin_write(int pin, int type, int value) {
  (void)type;
  return pin == LAMP && write_number(LED, value);
}
static int mcpu_pin_read(int pin, int type) {
  long value;
  (void)type;
  if (!read_number(pin == CPU ? TEMPERATURE : LED, &value)) return MCPU_NO_VALUE;
  return pin == CPU ? (int)(value / 100) : value != 0;
}

static void read_temperature(void) {
  long value;
  if (!read_number(TEMPERATURE, &value)) mcpu_fail("There is no thermometer");
  else mcpu_put_number("celsius", value / 1000.0, 1);
}

int main(int argc, char **argv) {
  mcpu_begin("desk", "1.0.0");
  mcpu_pin(CPU, "cpu", MCPU_ADC_INPUT, "Temperature of the processor, tenths of a degree");
  mcpu_sample(CPU, 1000, 60);
  mcpu_thresholds(CPU, 100, 750);
  mcpu_pin(LAMP, "lamp", MCPU_DIGITAL_OUTPUT, "The LED of the board");
  mcpu_tool("read_temperature", "Temperature of the processor", read_temperature);
  return mcpu_serve(argc > 1 ? argv[1] : NULL);
}
