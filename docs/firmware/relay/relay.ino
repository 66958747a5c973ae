// A relay board: four relays, and a tool that switches all of them off.
//
// Agents use gpio_write, which mcpu.h brings. How long a relay may stay on is not said here
// but in relay.yaml, the overlay beside this file: the gateway switches it off again when the
// time is up, when the agent is gone, or when the gateway itself was restarted.
//
//   Uno: relays on 4 to 7. They are off at low; many boards are off at high, then turn the
//   levels around with a tool of your own.
#include "mcpu.h"

const int RELAYS[] = {4, 5, 6, 7};

static void all_off(void) {
  for (int pin : RELAYS) digitalWrite(pin, LOW);
  mcpu_put_bool("off", true);
}

void setup() {
  Serial.begin(115200);
  mcpu_begin("relays", "1.0.0");
  mcpu_pin(4, "pump", MCPU_DIGITAL_OUTPUT, "Relay 1, the pump");
  mcpu_pin(5, "lamp", MCPU_DIGITAL_OUTPUT, "Relay 2, the lamp");
  mcpu_pin(6, "fan", MCPU_DIGITAL_OUTPUT, "Relay 3, the fan");
  mcpu_pin(7, "valve", MCPU_DIGITAL_OUTPUT, "Relay 4, the water valve");
  mcpu_tool("all_off", "Switch all relays off", all_off);
}

void loop() { mcpu_loop(Serial); }
