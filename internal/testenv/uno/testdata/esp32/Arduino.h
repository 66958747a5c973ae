// The part of the Arduino core for ESP32 that examples use, for compiling only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ESP32 1
#define HIGH 1
#define LOW 0
#define INPUT 1
#define OUTPUT 3
#define PSTR(s) (s)
#define pgm_read_byte(p) (*(const unsigned char *)(p))

class Print {
 public:
  virtual ~Print() {}
  virtual size_t write(uint8_t) = 0;
  virtual size_t write(const uint8_t *bytes, size_t n) = 0;
};

class Stream : public Print {
 public:
  virtual int available() = 0;
  virtual int read() = 0;
  virtual int peek() = 0;
};

class HardwareSerial : public Stream {
 public:
  void begin(unsigned long baud);
  int available() override;
  int read() override;
  int peek() override;
  size_t write(uint8_t) override;
  size_t write(const uint8_t *, size_t) override;
};
extern HardwareSerial Serial;

unsigned long millis();
void pinMode(uint8_t pin, uint8_t mode);
void digitalWrite(uint8_t pin, uint8_t value);
int digitalRead(uint8_t pin);
void analogWrite(uint8_t pin, int value);
uint16_t analogRead(uint8_t pin);
