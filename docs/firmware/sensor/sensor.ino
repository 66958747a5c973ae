// A soil sensor: one analog pin, and a tool that turns its voltage into percent.
//
//   Uno: sensor on A0, LED on 13.
#include "mcpu.h"

const int SOIL = A0;
const int DRY = 800, WET = 300; // what analogRead returns in dry soil, and in water

static void read_soil(void) {
  int raw = analogRead(SOIL);
  mcpu_put_int("percent", constrain(map(raw, DRY, WET, 0, 100), 0, 100));
  mcpu_put_int("raw", raw);
}

void setup() {
  Serial.begin(115200);
  mcpu_begin("soil", "1.0.0");
  mcpu_pin(SOIL, "moisture", MCPU_ADC_INPUT, "Soil moisture, lower is wetter");
  mcpu_pin(13, "led", MCPU_DIGITAL_OUTPUT, "The LED on the board");
  mcpu_tool("read_soil", "Read the moisture of the soil in percent", read_soil);
  mcpu_poll(2000); // the gateway calls it every two seconds and records the numbers
}

void loop() { mcpu_loop(Serial); }
