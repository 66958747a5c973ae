package config

import (
	"strings"
	"testing"
)

// TestMQTTPort: stock firmware uses TLS for MQTT at port 8883, and only there.
func TestMQTTPort(t *testing.T) {
	files := TLS{"a", "b"}
	for _, test := range []struct {
		dialIn          DialIn
		listen, reached string
		warning         string
	}{
		{DialIn{Listen: "0.0.0.0:3380"}, "0.0.0.0:3381", "192.168.1.10:3381", ""},
		{DialIn{Listen: "0.0.0.0:3380", TLS: files}, "0.0.0.0:8883", "192.168.1.10:8883", ""},
		{DialIn{Listen: "127.0.0.1:0", TLS: files}, "127.0.0.1:0", "127.0.0.1:40000", "only at port 8883, so it cannot connect to 127.0.0.1:40000"},
		{DialIn{Listen: "0.0.0.0:3380", MQTT: "0.0.0.0:1883", TLS: files}, "0.0.0.0:1883", "192.168.1.10:1883", "set dial_in.mqtt to HOST:8883, or to off"},
		{DialIn{Listen: "0.0.0.0:3380", MQTT: "0.0.0.0:1883", MQTTAddress: "h:8883", TLS: files}, "0.0.0.0:1883", "h:8883", ""},
		{DialIn{Listen: "0.0.0.0:3380", MQTT: "0.0.0.0:8883"}, "0.0.0.0:8883", "192.168.1.10:8883", "set dial_in.tls, or another port"},
		{DialIn{Listen: "0.0.0.0:3380", MQTTAddress: "h:8883"}, "0.0.0.0:3381", "h:8883", ""}, // a proxy has the certificate
		{DialIn{Listen: "0.0.0.0:3380", MQTT: "off", TLS: files}, "", "", ""},
	} {
		if got := test.dialIn.MQTTListen(); got != test.listen {
			t.Errorf("%+v: listens at %s", test.dialIn, got)
		}
		if test.listen == "" {
			continue
		}
		err := test.dialIn.CheckMQTT(test.reached)
		if (err == nil) != (test.warning == "") || err != nil && !strings.Contains(err.Error(), test.warning) {
			t.Errorf("%+v at %s: %v", test.dialIn, test.reached, err)
		}
	}
	https := DialIn{Listen: "0.0.0.0:3380", URL: "https://h", Devices: 1, PerHost: 1} // a proxy has the certificate
	if err := https.check(); err != nil {
		t.Error(err)
	}
	https.TLS = files
	if err := https.check(); err != nil {
		t.Error(err)
	}
}
