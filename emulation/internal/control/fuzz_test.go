package control

import (
	"encoding/json"
	"errors"
	"testing"
)

// Every line has one answer: a JSON object with ok, and with an error exactly if ok is false.
func FuzzExecute(f *testing.F) {
	for _, line := range []string{
		`{"command": "ready"}`, `{"command": "close", "listener": "h3"}`, `{"command": 1}`, `{}`, `[]`, `null`, `"ready"`, `nonsense`, ``,
		`{"command": "dance"}`, `{"command": "ready", "command": ""}`, "{\"command\": \"\xff\"}",
	} {
		f.Add([]byte(line))
	}
	commands := Commands{
		"ready": func([]byte) any { return OK },
		"close": func(object []byte) any {
			var command struct {
				Listener string `json:"listener"`
			}
			if err := json.Unmarshal(object, &command); err != nil {
				return Refusal(err)
			}
			if command.Listener == "" {
				return Refusal(errors.New("no listener"))
			}
			return OK
		},
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		text, err := json.Marshal(commands.Execute(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var answer struct {
			OK    *bool
			Error string
		}
		if err := json.Unmarshal(text, &answer); err != nil || answer.OK == nil || *answer.OK != (answer.Error == "") {
			t.Fatalf("%q: %s", line, text)
		}
	})
}
