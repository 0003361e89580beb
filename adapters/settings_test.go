package adapters

import (
	"bytes"
	"testing"

	"aep-wrap/event"
)

func TestSettings(t *testing.T) {
	for raw, want := range map[string]string{
		"\ufeff{}": "{}",
		`{"a": 1}`: `{"a":1}`,
		"// top\n{\"a\": 1, // one\r\n\"b\": /* two\n */ 2}//": `{"a":1,"b":2}`,
		`{"url": "http://x/*y*/", "q": "a\"//b\\"} /* */`:      `{"q":"a\"//b\\","url":"http://x/*y*/"}`,
		`{"a": 1,}`:       "",
		`{"a": 1 /* `:     "",
		`{"a": 1} /*/`:    `{"a":1}`,
		`{"a": 1 / / 2}`:  "",
		`{"a/**/b": 1}`:   `{"a/**/b":1}`,
		`{"a": "\`:        "",
		`{"a": 1} / * */`: "",
	} {
		got := ""
		if o, err := Settings([]byte(raw)); err == nil {
			got = string(event.AppendValue(nil, o))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

// What has no comments is read as it stands, whatever it is.
func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"a": "//", "b": [1, "\""]} // c`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out := uncommented(raw)
		if len(out) != len(raw) || !bytes.Equal(out, uncommented(out)) {
			t.Fatalf("%q became %q", raw, out)
		}
		if _, err := event.ParseObject(raw); err == nil && !bytes.Equal(out, raw) {
			t.Fatalf("%q became %q", raw, out)
		}
	})
}
