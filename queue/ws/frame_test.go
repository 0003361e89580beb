package ws

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"aep-wrap/event"
)

func TestFrames(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"hello","versions":["0.1"],"role":5,"capabilities":[]}`:  `hello [0.1]`,
		`{"type":"hello","versions":"0.1"}`:                               `hello []`,
		`{"type":"hello","versions":[0.1,null,"a"]}`:                      `hello [a]`,
		`{"type":"error","code":"c","detail":"d","id":"i","versions":[]}`: `error [] c d i`,
		`{"type":"error","code":"c","cause":"x","id":"i"}`:                `error [] c x`,
		`{"type":"error","code":5,"detail":{},"cause":[]}`:                `error []`,
		`{"type":"closing","reason":"r","delivered":[{"session":"s","seq":4},{"session":"s","epoch":2,"seq":1e1},{"session":"s","epoch":"x","seq":1},{"seq":1},7]}`: `closing [] r [{s {0 4}} {s {2 10}}]`,
		`{"type":"closing","delivered":{}}`: `closing []`,
		`{"type":"ping","t":[1,"a"]}`:       `ping [] echo [1,"a"]`,
		`{"type":"ping"}`:                   `ping []`,
		`{"type":"nobody-knows"}`:           `nobody-knows []`,
		`{"type":"a.b"}`:                    errEvent.Error(),
		`{"type":"x","type":"y"}`:           errNoObject.Error(),
		`{"type":""}`:                       errNoType.Error(),
		`{"type":["hello"]}`:                errNoType.Error(),
		`{}`:                                errNoType.Error(),
		`[]`:                                errNoObject.Error(),
		``:                                  errNoObject.Error(),
		"{\"type\":\"\xff\"}":               errNoObject.Error(),
		`{"Type":"hello"}`:                  errNoType.Error(),
	} {
		f, err := parseFrame([]byte(raw))
		got := fmt.Sprint(f.typ, " ", f.versions, " ", f.code, " ", f.detail, " ", f.about, f.reason)
		if f.echo != nil {
			got += fmt.Sprint("echo ", string(f.echo))
		}
		if f.at != nil {
			got += fmt.Sprint(" ", f.at)
		}
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), "\n")
		}
		if got = strings.Join(strings.Fields(got), " "); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func TestIntegers(t *testing.T) {
	for raw, want := range map[string]int64{"0": 0, "7": 7, "-1": -1, "7.0": 7, "70e-1": 7, "9223372036854775807": 1<<63 - 1, "9007199254740991.0": 1<<53 - 1} {
		if got, ok := integer(json.Number(raw)); !ok || got != want {
			t.Errorf("%s: %d %v", raw, got, ok)
		}
	}
	for _, v := range []any{json.Number("1.5"), json.Number("1e400"), json.Number("9223372036854775808"), json.Number("1e300"), "7", nil, true} {
		if got, ok := integer(v); ok {
			t.Errorf("%v: %d", v, got)
		}
	}
}

// FuzzFrame holds what is read, and what is said back, to the protocol's form.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		helloBack, `{"type":"hello","versions":["0.1"]}`, `{"type":"error","id":"e","code":"invalid-event","detail":"x","versions":["0.2"]}`,
		`{"type":"pong","t":17}`, `{"type":"ping","t":"a\u0000b"}`, `{"type":"ping","t":{"b":1,"a":[1e3,-0]}}`,
		`{"type":"closing","reason":"x","delivered":[{"sub":"1","session":"s","epoch":3,"seq":187}]}`, `{"type":"roster","id":"r"}`,
		commandLine("c", "control.cancel"), string(line("s", 3, "run.started")), `{"type":"x.y"}`, `[]`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		fr, err := parseFrame(raw)
		h, _, herr := event.ParseHeader(raw)
		if herr == nil && !errors.Is(err, errEvent) {
			t.Errorf("an event is taken for a frame: %v", err)
		}
		if herr == nil && isCommand(&h) && (h.Session == "" || h.Sequenced) {
			t.Error("a command without a session, or with a position")
		}
		if err != nil {
			return
		}
		if fr.typ == "" || strings.Contains(fr.typ, ".") {
			t.Errorf("a frame of type %q", fr.typ)
		}
		for _, p := range fr.at {
			if p.session == "" {
				t.Errorf("%+v", fr.at)
			}
		}
		if fr.typ == "ping" {
			back, err := parseFrame(pongFrame(fr.echo))
			if err != nil || back.typ != "pong" {
				t.Fatalf("%s: %v", pongFrame(fr.echo), err)
			}
			if a, b := event.Digest(fr.t), event.Digest(back.t); a != b {
				t.Errorf("echo %s, of %s", b, a)
			}
		}
		for _, s := range [][]byte{closingFrame(fr.reason), errorFrame(fr.code, fr.about, fr.detail)} {
			if _, err := parseFrame(s); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		}
	})
}
