// The part of the Arduino core for AVR that LineStream.h uses.
#pragma once

#include <stddef.h>
#include <stdint.h>

class Print {
 public:
  virtual size_t write(uint8_t) = 0;
  virtual size_t write(const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) write(bytes[i]);
    return n;
  }
  virtual int availableForWrite() { return 0; }
  virtual void flush() {}
};

class Stream : public Print {
 public:
  virtual int available() = 0;
  virtual int read() = 0;
  virtual int peek() = 0;
};
