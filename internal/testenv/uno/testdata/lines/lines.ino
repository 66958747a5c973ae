// The receive loop of the MCP-U library since 1.1: it parses what has arrived as soon as no
// byte is waiting. It reads through a LineStream, or with -DDIRECT from the port itself.
#include "LineStream.h"
#include "mcpu.h"

#ifdef DIRECT
#define PORT Serial
#else
static LineStream<> lines(Serial);
#define PORT lines
#endif

// Output keeps mcpu.h from reading: the loop below does.
class Output : public Stream {
 public:
  int available() override { return 0; }
  int read() override { return -1; }
  int peek() override { return -1; }
  size_t write(uint8_t c) override { return PORT.write(c); }
};

static Output output;
static char text[256];

void setup() {
  Serial.begin(115200);
  mcpu_port = &output;
  mcpu_begin("lines", "1.0.0");
  mcpu_pin(13, "led", MCPU_DIGITAL_OUTPUT, "LED");
}

void loop() {
  size_t n = 0;
  while (PORT.available() && n < sizeof text - 1) {
    char c = PORT.read();
    if (c == '\n') break;
    if (c != '\r') text[n++] = c;
  }
  text[n] = 0;
  if (n) mcpu_answer(text, text + n, false);
}
