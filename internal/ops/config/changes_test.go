package config_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ferrulehq/ferrule/internal/ops/config"
)

func TestChanges(t *testing.T) {
	from, to := config.Default(), config.Default()
	to.Endpoints = nil // the same as an empty list
	if got := config.Changes(from, to); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	to.Listen = ""
	to.Calls.Deadline = config.Interval(time.Minute)
	to.Endpoints = []config.Endpoint{{Name: "home"}}
	to.Telemetry.Traces.Endpoint = "http://me:hunter2@h"
	got := fmt.Sprint(config.Changes(from, to))
	if want := `[listen: 127.0.0.1:3377 -> "" endpoints calls.deadline: 30s -> 1m0s telemetry.traces.endpoint: "" -> http://…@h]`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
