package redaction

import (
	"strings"
	"testing"

	"aep-wrap/event"
)

// Another sender's event is kept as it came where that may be, and otherwise at
// the ceiling, without the secrets in it.
func TestLine(t *testing.T) {
	g := NewGate(Policy{Ceiling: event.Metadata, For: map[string]event.Level{"control": event.Redacted}}, nil)
	head := func(typ, capture string) string {
		return `{"aep":"0.1","id":"01J0000000000000000000CMD1","type":"` + typ + `","time":"2026-07-03T10:15:00Z","source":"aep://h/agent/phone","agent":"phone","session":"s","capture":"` + capture + `","data":`
	}
	secret := "sk-ant-api03-" + strings.Repeat("Ab3", 30)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing to hide", head("control.cancel", "redacted") + `{"scope": "run", "reason":"as agreed"}}`, ""},
		{"no data", strings.TrimSuffix(head("control.pause", "metadata"), `,"data":`) + "}", ""},
		{"a secret", head("control.cancel", "redacted") + `{"reason":"it is ` + secret + `","scope":"run"}}`, `"reason":"it is [REDACTED:secret]"`},
		{"above the ceiling", head("control.cancel", "full") + `{"reason":"why","scope":"run"}}`, `"capture":"metadata","data":{"scope":"run"}}`},
		{"a vendor's", head("x.demo.control.instruct", "redacted") + `{"text":"go on"}}`, `"capture":"metadata"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := g.Line([]byte(tt.in))
			switch {
			case err != nil:
				t.Error(err)
			case tt.want == "" && string(got) != tt.in:
				t.Errorf("changed:\n%s\n%s", tt.in, got)
			case tt.want != "" && !strings.Contains(string(got), tt.want):
				t.Errorf("%s lacks %s", got, tt.want)
			case strings.Contains(string(got), secret):
				t.Errorf("%s", got)
			}
			if _, err := event.Parse(got); err != nil {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
	if _, err := g.Line([]byte(`{"aep":"0.1"}`)); err == nil {
		t.Error("what is no event was kept")
	}
}
