package entity

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/ferrulehq/ferrule/internal/device/protocol/hass/discovery"
)

func TestScratch(t *testing.T) {
	f, err := os.Open(os.Getenv("FERRULE_TEST_ZIGBEE"))
	if err != nil {
		t.Skip(err)
	}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	counts := map[string]int{}
	shown := map[string]int{}
	for sc.Scan() {
		var line struct{ Topic, Payload string }
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		topic, ok := discovery.ParseTopic("homeassistant", line.Topic)
		if !ok {
			fmt.Println(line.Topic)
			continue
		}
		m, err := discovery.Parse(topic, []byte(line.Payload))
		if err != nil {
			fmt.Println(line.Topic, err)
			continue
		}
		for i := range m.Entities {
			e := &m.Entities[i]
			d := Describe(e)
			counts[e.Component]++
			for _, tool := range d.Tools {
				if tool.Quarantine != "" {
					counts[e.Component+" quarantined"]++
					if shown[e.Component]++; shown[e.Component] < 4 {
						fmt.Println(line.Topic, tool.Name, tool.Quarantine)
					}
				} else {
					counts[e.Component+" tools"]++
				}
			}
			for _, s := range d.States {
				counts[e.Component+" states"]++
				if s.Secret {
					counts[e.Component+" secret"]++
					if shown["s"]++; shown["s"] < 30 {
						fmt.Println(line.Topic, s.Name, s.Unit)
					}
				}
			}
			for _, n := range d.Notes {
				if shown[e.Component]++; shown[e.Component] < 4 {
					fmt.Println(n)
				}
			}
		}
	}
	b, _ := json.MarshalIndent(counts, "", " ")
	fmt.Println(string(b))
}
