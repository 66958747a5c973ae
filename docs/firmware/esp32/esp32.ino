// NOT RUN: this sketch is compiled against stubs in our tests, and was never on a board.
//
// A lamp on Wi-Fi: an ESP32 that listens on TCP port 4242. Connect it with
//
//   ferrule up --tcp lamp=192.168.1.20:4242
//
// Outputs keep their state when the gateway reconnects. The protocol has no password:
// use it in a network that you trust. A web page in that network cannot use the lamp:
// mcpu_loop_tcp closes the connection of a browser.
#include <WiFi.h>

#include "mcpu.h"

const char *NETWORK = "your network", *PASSWORD = "its password";

static WiFiServer server(4242);
static WiFiClient gateway;

static void read_signal(void) { mcpu_put_int("dbm", WiFi.RSSI()); }

void setup() {
  mcpu_begin("lamp", "1.0.0");
  mcpu_pin(2, "lamp", MCPU_DIGITAL_OUTPUT, "The lamp");
  mcpu_pin(34, "light", MCPU_ADC_INPUT, "Brightness, 0 to 4095");
  mcpu_sample(34, 100, 100);
  mcpu_thresholds(34, 200, 3800);
  mcpu_tool("read_signal", "Strength of the Wi-Fi signal", read_signal);
  mcpu_poll(10000);
  WiFi.begin(NETWORK, PASSWORD);
  server.begin();
}

void loop() {
  if (!gateway.connected()) {
    gateway = server.available();
    if (gateway) gateway.setNoDelay(true);
    mcpu_forget(); // half a line of the one before
  }
  mcpu_loop_tcp(gateway);
}
