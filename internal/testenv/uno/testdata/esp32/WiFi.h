// The part of the Wi-Fi library for ESP32 that examples use, for compiling only.
#pragma once

#include <Arduino.h>

class WiFiClient : public Stream {
 public:
  explicit operator bool();
  uint8_t connected();
  void stop();
  int setNoDelay(bool);
  int available() override;
  int read() override;
  int peek() override;
  size_t write(uint8_t) override;
  size_t write(const uint8_t *, size_t) override;
};

class WiFiServer {
 public:
  explicit WiFiServer(uint16_t port);
  void begin();
  WiFiClient available();
};

class WiFiClass {
 public:
  int begin(const char *network, const char *password);
  int8_t RSSI();
};
extern WiFiClass WiFi;
