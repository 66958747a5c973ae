// The serial port of firmware.c, read through a LineStream.
#include <Arduino.h>

#include "LineStream.h"

extern "C" {
bool port_take(char *c);
bool lines_take(char *c);
void __cxa_pure_virtual() {
  for (;;) {
  }
}
}

// Port has the firmware's ring buffer, and one byte in front of it for peek.
class Port : public Stream {
 public:
  int available() override { return peek() >= 0; }
  int read() override {
    int c = peek();
    held = -1;
    return c;
  }
  int peek() override {
    char c;
    if (held < 0 && port_take(&c)) held = (uint8_t)c;
    return held;
  }
  size_t write(uint8_t) override { return 0; }

 private:
  int held = -1;
};

static Port port;
static LineStream<> lines(port);

// lines_take takes the next byte as the library does: only if one is available.
bool lines_take(char *c) {
  if (lines.available() <= 0 || lines.peek() < 0) return false;
  *c = lines.read();
  return true;
}
