// A light sensor that is sampled ten times a second. The board keeps the last 20 samples;
// the gateway reads them before they are overwritten, so its history has all of them. Below
// 100 and above 900 the threshold signal of the pin is -1 and 1.
//
//   Uno: light sensor on A0, thermistor on A1.
#include "mcpu.h"

void setup() {
  Serial.begin(115200);
  mcpu_begin("light", "1.0.0");
  mcpu_pin(A0, "light", MCPU_ADC_INPUT, "Brightness, 0 to 1023");
  mcpu_sample(A0, 100, 20); // every 100 ms, keep 20
  mcpu_thresholds(A0, 100, 900);
  mcpu_pin(A1, "heat", MCPU_ADC_INPUT, "Thermistor, 0 to 1023");
  mcpu_sample(A1, 500, 10);
}

// Nothing here may take longer than a sample: use millis(), not delay().
void loop() { mcpu_loop(Serial); }
