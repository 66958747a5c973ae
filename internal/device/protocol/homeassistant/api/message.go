package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ferrulehq/ferrule/internal/ferrule"
	"github.com/ferrulehq/ferrule/internal/strictjson"
)

// message is a message of Home Assistant after the login.
type message struct {
	ID      int64           `json:"id"`
	Type    string          `json:"type"`
	Success *bool           `json:"success"`
	Result  json.RawMessage `json:"result"`
	Event   json.RawMessage `json:"event"`
	Error   *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// failure returns the error that an answer has; nil if it is good.
func (m message) failure() error {
	switch {
	case m.Error != nil:
		return &Error{Code: ferrule.Clean(m.Error.Code, 100), Message: ferrule.Clean(m.Error.Message, 1000)}
	case m.Success != nil && !*m.Success:
		return &Error{Code: "unknown_error", Message: "no reason given"}
	}
	return nil
}

// decode calls handle with each message of a frame: one, or an array of them.
func decode(data []byte, handle func(message)) error {
	data, err := unambiguous(data)
	if err != nil {
		return err
	}
	all := []json.RawMessage{data}
	if data[0] == '[' {
		all = nil
		if err := json.Unmarshal(data, &all); err != nil {
			return errForeign
		}
	}
	for _, one := range all {
		var m message
		if err := json.Unmarshal(one, &m); err != nil {
			return fmt.Errorf("%w: %w", errForeign, err)
		}
		handle(m)
	}
	return nil
}

// unambiguous returns JSON without white space around it, and without two members of the same
// name. An integration can make such members by mistake. The last one counts: one broken
// attribute must not take away all other entities.
func unambiguous(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	data = bytes.TrimSpace(data)
	err := strictjson.Check(data)
	var twice *strictjson.DuplicateError
	if errors.As(err, &twice) {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var value any
		if err = decoder.Decode(&value); err == nil {
			data, err = json.Marshal(value)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	return data, nil
}
