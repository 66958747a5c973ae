package ferrule

import "time"

// Duration is a time.Duration that reads and writes as text, such as "2s" or
// "1m30s", in JSON and in files.
type Duration time.Duration

// MarshalText writes d as time.Duration prints it.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(time.Duration(d).String()), nil
}

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

func (d Duration) String() string { return time.Duration(d).String() }
