// LineStream gives the MCP-U library whole lines.
//
// Since version 1.1 the library parses the bytes that have arrived as soon as no byte is
// waiting. On an AVR it therefore parses the first byte of a request on its own, and
// answers each piece with an error. The core's buffer of 64 bytes is also shorter than
// most requests. A LineStream stands between the library and the serial port: it keeps
// what arrives, and shows it to the library when the end of the line is there.
//
//   #include <MCP-U.h>
//   #include "LineStream.h"
//
//   LineStream<> lines(Serial);
//   McpDevice mcp("robot", "1.0.0");
//
//   void setup() {
//     Serial.begin(115200);
//     mcp.begin(lines, 0);  // 0: the port is open already
//   }
//
//   void loop() { mcp.loop(); }
//
// loop() must run often: at 115200 baud, 64 bytes arrive in 5 ms. Size is the longest
// line, with its end; it is also what the library accepts on an AVR.
#pragma once

#include <Arduino.h>

template <size_t Size = 256>
class LineStream : public Stream {
 public:
  explicit LineStream(Stream &port) : port(port) {}

  // available returns how many bytes of a complete line are left; 0 before its end has
  // arrived.
  int available() override {
    fill();
    return complete ? length - next : 0;
  }

  int read() override {
    if (!available()) return -1;
    uint8_t c = line[next++];
    if (next == length) {
      next = length = 0;
      complete = false;
    }
    return c;
  }

  int peek() override { return available() ? line[next] : -1; }

  size_t write(uint8_t c) override { return port.write(c); }
  size_t write(const uint8_t *bytes, size_t n) override { return port.write(bytes, n); }
  using Print::write;
  int availableForWrite() { return port.availableForWrite(); }
  void flush() { port.flush(); }

 private:
  // fill takes bytes from the port up to the end of a line. A line that is too long
  // becomes a question mark, which the library answers with an error at once.
  void fill() {
    while (!complete && port.available() > 0) {
      int c = port.read();
      if (c < 0) return;
      if (c != '\n') {
        if (length < Size - 1) line[length++] = c;
        else tooLong = true;
        continue;
      }
      if (tooLong) {
        line[0] = '?';
        length = 1;
      }
      line[length++] = '\n';
      tooLong = false;
      complete = true;
    }
  }

  Stream &port;
  uint8_t line[Size];
  size_t length = 0, next = 0;
  bool complete = false, tooLong = false;
};
