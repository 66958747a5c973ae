// A motor with a driver such as the L298N: a tool that moves it for a while, and one that
// stops it. motor.yaml, the overlay beside this file, says that `ferrule stop` calls the
// second one, and how fast and how often an agent may move it.
//
//   Uno: speed on 9 (PWM), direction on 8.
#include "mcpu.h"

const int SPEED = 9, DIRECTION = 8;

static bool moving;
static unsigned long started, duration; // milliseconds

static void halt() {
  analogWrite(SPEED, 0);
  moving = false;
}

// move only starts the motor: a handler must not wait.
static void move(void) {
  int speed = mcpu_int("speed");
  digitalWrite(DIRECTION, speed < 0 ? HIGH : LOW);
  analogWrite(SPEED, abs(speed));
  started = millis();
  duration = 1000UL * mcpu_int("seconds");
  moving = true;
  mcpu_put_int("speed", speed);
}

static void stop(void) {
  halt();
  mcpu_put_bool("moving", false);
}

static void status(void) {
  mcpu_put_bool("moving", moving);
  mcpu_put_int("left_ms", moving ? duration - (millis() - started) : 0);
}

void setup() {
  Serial.begin(115200);
  pinMode(SPEED, OUTPUT);
  pinMode(DIRECTION, OUTPUT);
  halt();
  mcpu_begin("motor", "1.0.0");
  mcpu_tool("move", "Turn the motor; it stops by itself", move);
  mcpu_arg_int("speed", -255, 255, "255 is full speed, negative is backwards");
  mcpu_arg_int("seconds", 1, 30, "how long");
  mcpu_tool("stop", "Stop the motor at once", stop);
  mcpu_tool("status", "Is the motor moving, and for how long", status);
}

void loop() {
  mcpu_loop(Serial);
  if (moving && millis() - started >= duration) halt();
}
