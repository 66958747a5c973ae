package thing_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/ferrulehq/ferrule/thing"
)

// Watering are the arguments of a tool. The tags become its schema.
type Watering struct {
	Seconds int `json:"seconds" jsonschema:"how long, 1 to 60"`
}

// A device with a pump, a sensor and a tool. Answer shows what it says to a request; a program
// usually calls ServeTCP or Serve.
func Example() {
	board := thing.New("greenhouse", "1.0.0")
	board.Output(2, "pump", "Water pump", func(on bool) error {
		fmt.Println("pump on:", on)
		return nil
	})
	board.Analog(34, "moisture", "Soil moisture, wetter is more", func() int { return 512 }).
		Sampled(time.Second, 120).Summary()
	thing.Tool(board, "water", "Run the pump for some seconds",
		func(_ context.Context, in Watering) (string, error) {
			if in.Seconds < 1 || in.Seconds > 60 {
				return "", &thing.RefusedError{Reason: "seconds must be between 1 and 60"}
			}
			return fmt.Sprintf("watered for %d s", in.Seconds), nil
		})

	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"gpio_write","params":{"pin":2,"value":true}}`,
		`{"jsonrpc":"2.0","id":2,"method":"water","params":{"seconds":5}}`,
		`{"jsonrpc":"2.0","id":3,"method":"water","params":{"seconds":"five"}}`,
	} {
		fmt.Printf("%s\n", bytes.TrimSpace(board.Answer(context.Background(), []byte(request))))
	}
	// Output:
	// pump on: true
	// {"result":{"pin":2,"name":"pump","value":true},"jsonrpc":"2.0","id":1}
	// {"result":"watered for 5 s","jsonrpc":"2.0","id":2}
	// {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"Bad params: seconds must be an integer, got a string"}}
}

// Tools can be called directly, for example in tests.
func ExampleDevice_Call() {
	board := thing.New("lamp", "1.0.0")
	thing.Tool(board, "brightness", "Get the brightness in percent",
		func(context.Context, struct{}) (map[string]int, error) { return map[string]int{"percent": 80}, nil },
		thing.Reads(), thing.Polled(10*time.Second))
	result, err := board.Call(context.Background(), "brightness", nil)
	fmt.Println(result, err)
	// Output: map[percent:80] <nil>
}
